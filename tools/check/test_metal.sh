#!/bin/sh
# The check of Metal's text refuses one bad text for each of its rules.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
metal=$tmp/src/backend/metal
mkdir -p "$metal/msl" "$tmp/src/backend/gpu/glsl" "$tmp/bin"
shader=$tmp/src/backend/gpu/glsl/good.comp
cat >"$shader" <<'END'
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
struct Row {
    uint64_t at;
    uint n[2];
};
layout(local_size_x = 32, local_size_x_id = 3) in;
layout(constant_id = 0) const uint N = 8;
layout(constant_id = 3) const uint THREADS = 32;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Rows { Row at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer U32 { uint at[]; };
layout(push_constant, std430) uniform Push { uint64_t rows; };
shared uint most[40];
void main()
{
    Row row = Rows(rows).at[gl_LocalInvocationID.x];
    most[gl_LocalInvocationID.x] = row.n[0] % N + THREADS;
    barrier();
    U32 sum = U32(row.at);
    atomicAdd(sum.at[0], most[N]);
}
END

# refuses NAME WORDS: the check fails and says WORDS
refuses() {
    rc=0
    sh "$here/metal.sh" "$tmp" >"$tmp/out" 2>&1 || rc=$?
    [ $rc != 77 ] || exit 77
    if [ $rc != 1 ] || ! grep -qF "$2" "$tmp/out"; then
        echo "metal.sh let $1 pass: exit status $rc, $(cat "$tmp/out")"
        exit 1
    fi
}
# text NAME WORDS LINES [BODY]: a file with these lines, and a kernel with that body, is refused
text() {
    printf '%s\n%s\n%s\n{\n%s\n}\n' '// By hand: threads 64' "$3" 'kernel void bad(constant uint& n [[buffer(0)]])' "${4:-}" >"$metal/bad.metal"
    refuses "$1" "$2"
    rm "$metal/bad.metal"
}

refuses 'a kernel that was not made' 'is not what tools/metal/generate.sh makes'
sh "$here/../metal/generate.sh" "$tmp"
sh "$here/metal.sh" "$tmp"
if [ "$(head -n 1 "$metal/msl/good.metal" | sed 's/.*: //')" != 'threads constant 3 default 32' ]; then
    echo "generate.sh does not see the size of a group"
    exit 1
fi
echo >>"$metal/msl/good.metal"
refuses 'a text that was changed' 'is not what tools/metal/generate.sh makes'
sh "$here/../metal/generate.sh" "$tmp"
cp "$metal/msl/good.metal" "$metal/msl/gone.metal"
refuses 'a text without a kernel' 'is not what tools/metal/generate.sh makes'
rm "$metal/msl/gone.metal"

text atomics 'atomicAdd(' '' '    atomicAdd(a, 1.0);'
text private 'memory of one thread' '' '    atomic_fetch_add_explicit((thread atomic_uint*)&a, 1u, memory_order_relaxed);'
text length spvBufferSizeConstants 'constant uint* spvBufferSizeConstants [[buffer(25)]];'
text macro SPIRV_CROSS_CONSTANT_ID '#define SPIRV_CROSS_CONSTANT_ID_0 1u'
text optnone optnone '__attribute__((optnone))'
text buffers 'two parameters at buffer 0' 'void f(device uint* x [[buffer(0)]]);'
text index 'buffer 31' 'void f(device uint* x [[buffer(31)]]);'
constants='constant uint N_tmp [[function_constant(0)]];
constant uint N = is_function_constant_defined(N_tmp) ? N_tmp : 8u;
constant uint TWICE = (2u * N);'
text constants 'two function constants with number 0' "$constants
constant uint M_tmp [[function_constant(0)]];"
text memory '32772 bytes' '' '    threadgroup float4 a[2][1024];
    threadgroup uint b;'
text type 'a type whose size is not known' '' '    threadgroup Row a[4];'
text sized 'sized by a function constant' "$constants" '    threadgroup float a[N];'
text derived 'sized by a function constant' "$constants" '    threadgroup float a[TWICE];'
text name 'is not a number' '' '    threadgroup float a[M];'
text own 'sized by a function constant' "$constants" '    spvUnsafeArray<spvUnsafeArray<float, 2>, TWICE> a;'
printf 'kernel void bad(constant uint& n [[buffer(0)]])\n{\n}\n' >"$metal/bad.metal"
refuses threads 'how many threads'
rm "$metal/bad.metal"

# A compiler that makes a later SPIR-V than it is asked for.
printf '#!/bin/sh\nexec %s $(echo "$@" | sed s/spv1.3/spv1.5/)\n' "$(command -v glslc)" >"$tmp/bin/glslc"
chmod +x "$tmp/bin/glslc"
PATH=$tmp/bin:$PATH
refuses copies OpCopyLogical
