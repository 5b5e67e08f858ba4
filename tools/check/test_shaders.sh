#!/bin/sh
# The shader check refuses one bad kernel for each of its rules.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
dir=$tmp/src/backend/gpu/glsl
mkdir -p "$dir"
head='#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F32 { float at[]; };
layout(push_constant, std430) uniform Push { uint64_t y; };'

# refuses NAME WORDS BODY: the check of a tree with that kernel fails and says WORDS
refuses() {
    printf '%s\n%s\n' "$head" "$3" >"$dir/$1.comp"
    rc=0
    sh "$here/shaders.sh" "$tmp" >"$tmp/out" 2>&1 || rc=$?
    [ $rc != 77 ] || exit 77
    if [ $rc != 1 ] || ! grep -q "$2" "$tmp/out"; then
        echo "shaders.sh let $1 pass: exit status $rc, $(cat "$tmp/out")"
        exit 1
    fi
    rm "$dir/$1.comp"
}
refuses syntax error 'void main() { F32(y).at[0] = nothing; }'
refuses length 'length()' 'layout(std430, set = 0, binding = 1) buffer B { float b[]; }; void main() { F32(y).at[0] = float(b.length()); }'
refuses atomics 'float atomics' '#extension GL_EXT_shader_atomic_float : require
void main() { atomicAdd(F32(y).at[0], 1.0); }'
refuses shared 'specialization constant' 'layout(constant_id = 0) const uint N = 8; shared float s[N];
void main() { s[gl_LocalInvocationIndex % N] = 1.0; barrier(); F32(y).at[gl_LocalInvocationIndex] = s[0]; }'
printf '%s\n%s\n' "$head" 'void main() { F32(y).at[gl_GlobalInvocationID.x] = 1.0; }' >"$dir/good.comp"
sh "$here/shaders.sh" "$tmp"
