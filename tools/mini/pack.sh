#!/bin/sh
# pack.sh CHECKPOINT FOLDER OUT: the exported folder and the master weights (BF16) in parts below 16 MiB
set -e
tar -C "$2" -cf - . | split -b 15000000 - "$3/model.tar."
python3 - "$1" <<'P'
import sys, torch
s = torch.load(sys.argv[1], map_location="cpu", weights_only=False)
torch.save(dict(w={k: v.to(torch.bfloat16) for k, v in s["w"].items()}, bias=s["bias"], info=s["info"]), "/tmp/master.pt")
P
split -b 16000000 /tmp/master.pt "$3/master.pt."
ls -la "$3"
