#!/bin/sh
# shaders.sh ROOT: every kernel compiles to SPIR-V that the validator takes and that keeps to what Metal can be made of: no length() of a
# buffer, no float atomics, no shared array sized by a specialization constant. Where spirv-cross is there, it makes Metal of all but the kernels
# for matrix units. Exit status 77, a skip, where glslc or the SPIR-V tools are missing.
set -eu
cd "${1:-.}"
for tool in glslc spirv-val spirv-dis; do
    command -v $tool >/dev/null || {
        echo "$tool is not installed"
        exit 77
    }
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
matrix='-DK3_AS_B=16 -DK3_AS_HALF_SUM=16'
printf '#version 450\n#extension GL_KHR_cooperative_matrix : require\nvoid main() {}\n' >"$out/probe.comp"
glslc --target-env=vulkan1.2 --target-spv=spv1.3 "$out/probe.comp" -o "$out/probe.spv" 2>/dev/null && matrix=-DK3_MATRIX_KHR=1

bad=0
for shader in src/backend/gpu/glsl/*.comp; do
    name=$(basename "$shader" .comp)
    if ! glslc -Isrc --target-env=vulkan1.2 --target-spv=spv1.3 $matrix "$shader" -o "$out/$name.spv" ||
        ! spirv-val --target-env vulkan1.2 "$out/$name.spv"; then
        echo "$shader: is not valid"
        bad=1
        continue
    fi
    spirv-dis --raw-id "$out/$name.spv" >"$out/$name.txt"
    if grep -q OpArrayLength "$out/$name.txt"; then
        echo "$shader: length() of a buffer"
        bad=1
    fi
    if grep -q OpAtomicF "$out/$name.txt"; then
        echo "$shader: float atomics"
        bad=1
    fi
    if awk '$3 ~ /^OpSpecConstant/ { spec[$1] = 1 } $3 == "OpTypeArray" && $5 in spec { bad = 1 } END { exit !bad }' "$out/$name.txt"; then
        echo "$shader: an array sized by a specialization constant"
        bad=1
    fi
    case $name in *_matrix) continue ;; esac
    if command -v spirv-cross >/dev/null &&
        ! spirv-cross --msl --msl-version 30000 --msl-decoration-binding "$out/$name.spv" >"$out/$name.metal" 2>"$out/said"; then
        echo "$shader: no Metal can be made of it: $(cat "$out/said")"
        bad=1
    fi
done
exit $bad
