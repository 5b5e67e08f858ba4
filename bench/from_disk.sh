#!/bin/sh
# from_disk.sh MODEL [options]: what a token costs when weights come from the drive, beside what the same drive gives to fio.
#
#   --case NAME    experts: everything in memory but experts, which have --experts bytes; streamed: --ram bytes in all, so that the trunk
#                  comes from the drive too. May be given twice [both]
#   --rounds N     of k3 and fio in turn [5]
#   -n N           tokens of a run [16]
#   --experts B    bytes of memory for experts [1000000000]
#   --ram B        bytes of memory in all [2000000000]
#   --trunk T      as k3 has it [bf16]
#   --k3 PATH      the program [build/release/k3 beside this folder]
#
# A round is one run of `k3 run --ids 1`, so that every pass is a pass of one token, and one of fio over the model's own shards, opened for
# reading: reads of one expert's size, as many at once as k3 has in flight, and as many bytes as k3 has read. Page caches are dropped before
# either. What lies behind the drive of a virtual machine may keep pages of its own, and k3 reads again what it read before, fio mostly what
# it did not: a share above 100 % says that. A table of all rounds and their medians goes to stdout, MB is 10^6 bytes. Linux; wants fio (Debian:
# apt-get install fio), which nothing else of k3 needs, and python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
k3=$here/../build/release/k3
model='' cases='' rounds=5 n=16 experts=1000000000 ram=2000000000 trunk=bf16

usage() {
    echo "from_disk: $1; sed -n 2,18p $0 tells the options" >&2
    exit 2
}
whole() {
    case $2 in
    '' | *[!0-9]* | 0*) usage "$1 $2: a whole number above 0 wanted" ;;
    esac
}
while [ $# -gt 0 ]; do
    case $1 in
    --case | --rounds | -n | --experts | --ram | --trunk | --k3) [ $# -gt 1 ] || usage "$1: a value wanted" ;;
    esac
    case $1 in
    --case) cases="$cases $2" ;;
    --rounds) whole "$1" "$2" && rounds=$2 ;;
    -n) whole "$1" "$2" && n=$2 ;;
    --experts) whole "$1" "$2" && experts=$2 ;;
    --ram) whole "$1" "$2" && ram=$2 ;;
    --trunk) trunk=$2 ;;
    --k3) k3=$2 ;;
    -*) usage "$1: no such option" ;;
    *)
        [ -z "$model" ] || usage "$1: one model wanted"
        model=$1
        shift
        continue
        ;;
    esac
    shift 2
done
[ -n "$model" ] || usage 'no model'
command -v fio >/dev/null || {
    echo "from_disk: fio is not installed, and there is nothing to compare with; on Debian: apt-get install fio" >&2
    exit 1
}
[ -x "$k3" ] || usage "$k3 is no program; build it, or name one with --k3"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# of_plan NAME OPTION...: a value of `k3 plan --json`. The disk's rate is stated so that nothing is measured.
of_plan() {
    name=$1
    shift
    "$k3" plan "$model" --backend cpu --trunk "$trunk" --chunk 64 --disk-rate 1G --json "$@" >"$out/plan"
    python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))[sys.argv[2]]))' "$out/plan" "$name"
}

# Bytes of an expert's six tensors: three matrices, 17 bytes for 32 weights.
expert=$(python3 -c '
import json, sys
c = json.load(open(sys.argv[1] + "/config.json"))
c = c.get("text_config", c)
print(3 * (c.get("routed_expert_hidden_size") or c["hidden_size"]) * c["moe_intermediate_size"] * 17 // 32)' "$model")
block=$(((expert + 4095) / 4096 * 4096))

# Shards that a read fits, separated as fio wants it.
files=$(find -L "$model" -maxdepth 1 -name '*.safetensors' -size +"$((block / 512))"b | sort | sed 's/:/\\:/g' | paste -sd :)

drop_caches() {
    sync
    ( echo 3 >/proc/sys/vm/drop_caches ) 2>/dev/null || echo "from_disk: page caches could not be dropped; root may do it" >&2
}

# run_k3 RAM: figures of a run to $out/stats, its ids to $out/ids, its peak to $out/peak. The kernel keeps the peak, so that the last look
# before the end sees it.
run_k3() {
    drop_caches
    "$k3" run "$model" --backend cpu --trunk "$trunk" --chunk 64 --ram "$1" --ids 1 -n "$n" --temp 0 --disk-rate 1G --stats >"$out/ids" 2>"$out/stats" &
    pid=$!
    while grep VmHWM "/proc/$pid/status" >"$out/now" 2>/dev/null && [ -s "$out/now" ]; do
        awk '{ print $2 * 1024 }' "$out/now" >"$out/peak"
        sleep 0.1
    done
    wait $pid || {
        cat "$out/stats" >&2
        exit 1
    }
}

# between BEFORE AFTER: the number between two texts of the statistics
between() {
    sed -n "s/.*$1\\([0-9.]*\\)$2.*/\\1/p" "$out/stats" | head -n 1
}

# measure CASE ROUND RAM READERS PEAK: a line "NAME VALUE" a figure, appended to $out/CASE
measure() {
    run_k3 "$3"
    [ -f "$out/first" ] || cp "$out/ids" "$out/first"
    cmp -s "$out/ids" "$out/first" || echo "from_disk: $1, round $2: other ids than in the first run" >&2
    in_flight=$(between 'depth ' ',')
    bytes=$(awk -v gb="$(between '; ' ' GB from disk')" 'BEGIN { printf "%.0f", gb * 1e9 }')
    [ "$bytes" -gt 0 ] || {
        echo "from_disk: $1: k3 read nothing from the drive; less memory wanted" >&2
        exit 1
    }
    # k3 has pieces of about 1 MiB in flight, and never more pieces than reads where these are shorter.
    depth=$(awk -v d="$in_flight" -v r="$4" -v b="$block" 'BEGIN { n = d * 1048576 / b; n = n > d ? d : n < 2 ? 2 : n; printf "%d", n * r + 0.999 }')
    drop_caches
    fio --name=ceiling --readonly --filename="$files" --rw=randread --norandommap --bs="$block" --iodepth="$depth" --ioengine=io_uring --direct=1 \
        --fixedbufs --io_size="$bytes" --file_service_type=roundrobin:16 --output-format=terse --terse-version=3 >"$out/fio" 2>&1 || {
        cat "$out/fio" >&2
        exit 1
    }
    awk -v passes="$(sed -n 's/^\([0-9]*\) passes of.*/\1/p' "$out/stats")" -v total="$(between 'took ' ' s')" -v bytes="$bytes" \
        -v busy="$(between 'from disk in ' ' s')" -v waited_e="$(between 'for experts ' ',')" -v waited_t="$(between 'for the trunk ' ';')" \
        -v hit="$(between 'hit rate ' ' %')" -v reads="$(between 'read ' ' of them')" -v peak="$(cat "$out/peak")" -v planned="$5" \
        -v load="$(cut -d ' ' -f 1 /proc/loadavg)" -F ';' '
    function say(name, format, value) { printf "%s\t" format "\n", name, value }
    $1 == 3 { ceiling = $7 * 1024 }
    END {
        if (!ceiling || !passes || !busy) { print "from_disk: k3 or fio said something else than expected" >"/dev/stderr"; exit 1 }
        read = bytes / ceiling; compute = total - waited_e - waited_t
        say("fio, MB/s", "%.0f", ceiling / 1e6)
        say("drive while busy, MB/s", "%.0f", bytes / busy / 1e6)
        say("share of fio, %", "%.1f", 100 * bytes / busy / ceiling)
        say("read, MB", "%.1f", bytes / 1e6)
        say("experts read", "%d", reads)
        say("hit rate, %", "%.1f", hit)
        say("token, s", "%.4f", total / passes)
        say("drive busy, s a token", "%.4f", busy / passes)
        say("read time at the rate of fio, s a token", "%.4f", read / passes)
        say("arithmetic, s a token", "%.4f", compute / passes)
        say("waiting for experts, s a token", "%.4f", waited_e / passes)
        say("waiting for the trunk, s a token", "%.4f", waited_t / passes)
        say("token / max(read time, arithmetic)", "%.3f", total / (read > compute ? read : compute))
        say("peak in memory, MB", "%.1f", peak / 1e6)
        say("peak as planned, MB", "%.1f", planned / 1e6)
        say("load", "%s", load)
    }' "$out/fio" >>"$out/$1"
}

table() {
    awk -v rounds="$rounds" -F '\t' '
    !($1 in n) { name[++n_names] = $1 }
    { value[$1, ++n[$1]] = $2 }
    END {
        line = "| |"; rule = "|---|"
        for (i = 1; i <= rounds; i++) { line = line " round " i " |"; rule = rule "---|" }
        print line " median |\n" rule "---|"
        for (k = 1; k <= n_names; k++) {
            line = "| " name[k] " |"
            for (i = 1; i <= rounds; i++) { line = line " " value[name[k], i] " |"; sorted[i] = value[name[k], i] }
            for (i = 2; i <= rounds; i++)
                for (j = i; j > 1 && sorted[j] + 0 < sorted[j - 1] + 0; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
            m = rounds % 2 ? sorted[(rounds + 1) / 2] : (sorted[rounds / 2] + sorted[rounds / 2 + 1]) / 2
            print line " " m " |"
        }
    }' "$out/$1"
}

for case in ${cases:-experts streamed}; do
    case $case in
    experts)
        trunk_bytes=$(of_plan trunk_bytes)
        limit=$((trunk_bytes + $(of_plan conversation_bytes) + $(of_plan pass_bytes) + experts))
        ;;
    streamed) limit=$ram ;;
    *) usage "--case $case: experts or streamed wanted" ;;
    esac
    peak=$(of_plan peak --ram "$limit")
    slots=$(of_plan expert_slots --ram "$limit") all=$(of_plan experts --ram "$limit")
    kept=$(of_plan layers_in_memory --ram "$limit") layers=$(of_plan layers --ram "$limit")
    readers=$((kept < layers ? 2 : 1))
    round=1
    while [ $round -le "$rounds" ]; do
        echo "from_disk: $case, round $round of $rounds" >&2
        measure "$case" $round "$limit" $readers "$peak"
        round=$((round + 1))
    done
    echo
    echo "$case: --ram $limit --trunk $trunk, slots for $slots of $all experts of $expert bytes, $kept of $layers layers in memory; $n tokens; fio: reads of $block bytes, depth $depth"
    echo
    table "$case"
done
