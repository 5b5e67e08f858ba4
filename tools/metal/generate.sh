#!/bin/sh
# generate.sh [ROOT [OUT]]: Metal's text of every kernel in ROOT/src/backend/gpu/glsl but those for matrix units, by way of SPIR-V, to
# OUT/<stem>.metal (ROOT/src/backend/metal/msl). The first line says how many threads a group has: a number, or the function constant that
# holds it and its default. Exit status 77 where a tool is missing.
set -eu
root=${1:-.}
out=${2:-$root/src/backend/metal/msl}
for tool in glslc spirv-cross spirv-dis; do
    command -v $tool >/dev/null || {
        echo "$tool is not installed"
        exit 77
    }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$out"

# The size of a group: the builtin where it is a specialization constant, else the mode of the entry point. spirv-cross drops the addresses
# from structures that OpCopyLogical copies, without a word.
cat >"$tmp/threads.awk" <<'END'
$1 == "OpExecutionMode" && $3 == "LocalSize" { size = $4 }
$1 == "OpDecorate" && $3 == "SpecId" { id[$2] = $4 }
$1 == "OpDecorate" && $4 == "WorkgroupSize" { builtin = $2 }
$3 == "OpSpecConstant" { value[$1] = $5 }
$3 == "OpSpecConstantComposite" && $1 == builtin { x = $5 }
$3 == "OpCopyLogical" { copies = 1 }
END { print x in id ? "constant " id[x] " default " value[x] : size; exit copies }
END

# Names made of SPIR-V's numbers are numbered anew in the order of the text, since another glslc counts otherwise. Atomics on memory behind
# an address get its address space, which spirv-cross takes for a thread's own. A function constant that is declared twice, for the size of a
# group and by a name, is declared once.
cat >"$tmp/tidy.awk" <<'END'
match($0, /function_constant\([0-9]+/) {
    id = substr($0, RSTART, RLENGTH)
    if (id in name) {
        getline
        $0 = $1 " " $2 " " $3 " = " name[id] ";"
    } else {
        name[id] = $3
        sub(/_tmp$/, "", name[id])
    }
}
{
    gsub(/\(thread atomic_/, "(device atomic_")
    line = ""
    while (match($0, /[A-Za-z0-9_]+/)) {
        word = substr($0, RSTART, RLENGTH)
        if (word ~ /^v?_[0-9]+(_tmp)?$/) {
            split(word, part, "_")
            if (!(part[2] in number))
                number[part[2]] = ++n
            word = part[1] "_" number[part[2]] (part[3] != "" ? "_tmp" : "")
        }
        line = line substr($0, 1, RSTART - 1) word
        $0 = substr($0, RSTART + RLENGTH)
    }
    print line $0
}
END

for shader in "$root"/src/backend/gpu/glsl/*.comp; do
    stem=$(basename "$shader" .comp)
    case $stem in *_matrix) continue ;; esac
    # As in cmake/shaders.cmake.
    glslc -I"$root/src" --target-env=vulkan1.2 --target-spv=spv1.3 "$shader" -o "$tmp/spv"
    spirv-dis --raw-id "$tmp/spv" -o "$tmp/words"
    threads=$(awk -f "$tmp/threads.awk" "$tmp/words") || {
        echo "$shader: OpCopyLogical"
        exit 1
    }
    spirv-cross --msl --msl-version 30000 --msl-decoration-binding --rename-entry-point main "$stem" comp "$tmp/spv" --output "$tmp/text"
    {
        echo "// Made by tools/metal/generate.sh from glsl/$stem.comp, do not edit: threads $threads"
        awk -f "$tmp/tidy.awk" "$tmp/text"
    } >"$out/$stem.metal"
done
