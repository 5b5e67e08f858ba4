#!/bin/sh
# metal.sh ROOT: the Metal text of the kernels is what tools/metal/generate.sh makes of the GLSL, and all of it, made or written by hand, keeps
# to what Metal wants and a text shows. Prints one line a breach; exit status 1 if there is any, 77, a skip, where a tool is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sh "$here/../metal/generate.sh" . "$out"

bad=0
if ! diff -rq "$out" src/backend/metal/msl; then
    echo "src/backend/metal/msl: is not what tools/metal/generate.sh makes"
    bad=1
fi

# shellcheck disable=SC2046
awk '
function said(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; n_bad++ }
function finish() {
    if (bytes > 32768) { printf "%s: %d bytes of threadgroup memory, at most 32768\n", last, bytes; n_bad++ }
    if (last != "" && !threads && kernels) { printf "%s: the first line does not say how many threads a group has\n", last; n_bad++ }
    bytes = kernels = 0
    split("", buffer); split("", constant); split("", open)
}
# Bytes of a type, 0 of one that is not known.
function size_of(type,   lanes, scalar) {
    scalar = type
    sub(/[234]$/, "", scalar)
    lanes = scalar == type ? 1 : substr(type, length(type)) + 0
    return (scalar in size ? size[scalar] : 0) * (lanes == 3 ? 4 : lanes)
}
# Whether an expression has a name whose value is a function constant, or made of one.
function is_open(expression) {
    while (match(expression, /[A-Za-z_][A-Za-z0-9_]*/)) {
        if (substr(expression, RSTART, RLENGTH) in open) return 1
        expression = substr(expression, RSTART + RLENGTH)
    }
    return 0
}
function declared(line,   type, number, n) {
    type = line
    sub(/^ *threadgroup /, "", type)
    sub(/[^A-Za-z0-9_].*/, "", type)
    n = size_of(type)
    if (!n) said("threadgroup memory of a type whose size is not known: " type)
    while (match(line, /\[[^]]*\]/)) {
        number = substr(line, RSTART + 1, RLENGTH - 2)
        line = substr(line, RSTART + RLENGTH)
        if (is_open(number)) said("an array sized by a function constant")
        else if (number !~ /^[0-9]+$/) said("the size of an array in threadgroup memory is not a number: " number)
        n *= number
    }
    bytes += n
}
BEGIN {
    n = split("float 4 int 4 uint 4 half 2 short 2 ushort 2 char 1 uchar 1 bool 1 long 8 ulong 8 atomic_uint 4 atomic_int 4", part, " ")
    for (i = 1; i < n; i += 2) size[part[i]] = part[i + 1]
}
FNR == 1 { finish(); last = FILENAME; threads = /threads ([0-9]+|constant [0-9]+ default [0-9]+)$/ }
{ code = $0; sub(/\/\/.*/, "", code); gsub(/\/\*([^*]|\*[^\/])*\*\//, "", code) }
code ~ /(^|[^A-Za-z0-9_])atomicAdd\(/ { said("atomicAdd(: an atomic operation of GLSL") }
code ~ /spvBufferSizeConstants/ { said("spvBufferSizeConstants: the length of a buffer") }
code ~ /SPIRV_CROSS_CONSTANT_ID/ { said("SPIRV_CROSS_CONSTANT_ID: a function constant became a macro") }
code ~ /optnone/ { said("optnone: a function that is not optimised") }
code ~ /\(thread atomic_/ { said("an atomic operation on memory of one thread") }
code ~ /^kernel / { kernels++ }
{
    line = code
    while (match(line, /\[\[(buffer|function_constant)\([0-9]+\)\]\]/)) {
        name = substr(line, RSTART + 2, RLENGTH - 4)
        number = name
        gsub(/[^0-9]/, "", number)
        if (name ~ /^buffer/ && number in buffer) said("two parameters at buffer " number)
        if (name ~ /^buffer/ && number > 30) said("buffer " number ", at most 30")
        if (name ~ /^buffer/) buffer[number]
        if (name ~ /^function/ && number in constant) said("two function constants with number " number)
        if (name ~ /^function/) constant[number]
        line = substr(line, RSTART + RLENGTH)
    }
}
code ~ /^constant [a-z0-9]+ [A-Za-z0-9_]+ (\[\[function_constant|=)/ { if (code ~ /function_constant/ || is_open(substr(code, index(code, "=")))) open[$3] }
code ~ /^ *threadgroup [A-Za-z0-9_]+ [A-Za-z0-9_]+(\[.*)?;/ { declared(code) }
code ~ /spvUnsafeArray</ {
    line = code
    while (match(line, /, *[^,<>]*>/)) {
        number = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (is_open(number)) said("an array sized by a function constant")
    }
}
END { finish(); exit n_bad > 0 }' $(find src/backend/metal -name '*.metal' | sort) || bad=1
exit $bad
