#!/bin/sh
# Case J17: a compiler, or its assembler, that does not know an instruction set leaves its kernels out with a notice, and the rest is built. One
# that refuses AVX-512 and AMX stands for it.
set -eu
[ "$(uname -m)" = x86_64 ] || {
    echo "old_compiler: for x86-64 only"
    exit 77
}
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
cat >"$at/cc" <<'CC'
#!/bin/sh
for argument; do
    case $argument in
    -mavx512* | -mamx*) echo "cc: error: unrecognized command-line option '$argument'" >&2; exit 1 ;;
    esac
done
exec cc "$@"
CC
chmod +x "$at/cc"
cmake -S . -B "$at/build" -G Ninja -DCMAKE_C_COMPILER="$at/cc" -DCMAKE_BUILD_TYPE=Release -DK3_TESTS=OFF >"$at/log" 2>&1 || {
    cat "$at/log"
    exit 1
}
for isa in avx512 avx512bf16 amx; do
    grep -q "cannot build $isa kernels; they are left out" "$at/log" || {
        echo "old_compiler: no notice that $isa kernels are left out"
        exit 1
    }
done
kernels=CMakeFiles/k3_backend.dir/src/backend/cpu
ninja -C "$at/build" $kernels/kernels.c.o $kernels/peak.c.o $kernels/x86/matmul_avx2.c.o >"$at/log" 2>&1 || {
    tail -20 "$at/log"
    exit 1
}
if nm "$at/build/$kernels/kernels.c.o" "$at/build/$kernels/peak.c.o" | grep -E ' U k3_.*(avx512|amx)'; then
    echo "old_compiler: the tables name kernels that were left out"
    exit 1
fi
nm "$at/build/$kernels/kernels.c.o" | grep -q ' U k3_matmul_avx2'
