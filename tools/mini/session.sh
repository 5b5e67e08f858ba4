#!/bin/sh
# session.sh OUT BEGIN MINUTES TOTAL N LONG: one call of the training run on the GPU machine; continues where /tmp/w left off
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore
out=$1; w=/tmp/w; m=models/k3-mini
mkdir -p $w
go() { python3 tools/mini/train.py $m --out $w --begin "$1" --minutes "$2" --total "$3" $4 $5 $6 2>&1 | grep -v -i -e softmax -e reduction -e warn -e important -e '^$'; }
resume=; [ -f $w/checkpoint.pt ] || [ ! -f .ckpt/master.pt ] || cp .ckpt/master.pt $w/checkpoint.pt
[ -f $w/checkpoint.pt ] && resume="--resume $w/checkpoint.pt"
before=$(stat -c %Y $w/checkpoint.pt 2>/dev/null)
go "$2" "$3" "$4" $resume
if [ "$(stat -c %Y $w/checkpoint.pt 2>/dev/null)" = "$before" ]; then
    echo "the captured form failed; the compiled form instead"
    go "$2" "$(python3 -c "print($3 - 1.7)")" "$4" --no-graph $resume
fi
rm -rf /tmp/m; cp -r $m /tmp/m
python3 tools/mini/export.py $w/checkpoint.pt /tmp/m
sh tools/mini/pack.sh $w/checkpoint.pt /tmp/m $out
cp $w/log.jsonl $out/
timeout "${7:-70}" python3 tools/mini/evaluate.py /tmp/m --n "$5" --long "$6" --show 2 --json $out/eval.json
