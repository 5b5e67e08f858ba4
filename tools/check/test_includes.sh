#!/bin/sh
# The include check can fail: one bad file for every rule, each must be named; and a good tree passes.
set -eu
check=$(cd "$(dirname "$0")" && pwd)/includes.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# put PATH, with the text on standard input
put() {
    mkdir -p "$tree/$(dirname "$1")"
    cat >"$tree/$1"
}
# must_fail PATH WORDS: the check names this file and says these words
must_fail() {
    if output=$(sh "$check" "$tree"); then
        echo "includes: $1 passed, it must be refused: $2" >&2
        failed=1
    elif ! printf '%s\n' "$output" | grep "^$1:[0-9]*: " | grep -q "$2"; then
        echo "includes: $1 was not refused with \"$2\" but: $output" >&2
        failed=1
    fi
    rm "$tree/$1"
}
lines() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) print "/* */" }'
}

lines 200 | put include/k3.h
printf '#include "base/error.h"\n#include "k3.h"\n#include <stdio.h>\nint f(char *s) { return snprintf(s, 1, "printf(x)"); }\n' | put src/model/good.c
printf '#include "k3.h"\n#include "options.h"\nint main(void) { printf("x"); return 0; }\n' | put apps/main.c
printf '#include "options.h"\n#include "k3.h"\n' | put apps/server/http.c
printf 'int x;\n' | put apps/options.h
printf '#if K3_HAVE_AVX2\n#endif\n' | put src/backend/cpu/kernels.c
printf '#include "engine/engine.h"\n#if K3_HAVE_AVX2\n#endif\n' | put tests/engine/test_x.c
if ! output=$(sh "$check" "$tree"); then
    echo "includes: a good tree was refused: $output" >&2
    failed=1
fi

echo '#include "model/forward.h"' | put src/base/a.c && must_fail src/base/a.c 'may not include'
echo '#include "text/vocab.h"' | put src/model/a.c && must_fail src/model/a.c 'may not include'
echo '#include "engine/engine.h"' | put src/text/a.h && must_fail src/text/a.h 'may not include'
echo '  #  include "store/experts.h"' | put src/backend/cpu/a.c && must_fail src/backend/cpu/a.c 'may not include'
echo '#include "vocab.h"' | put src/text/a.c && must_fail src/text/a.c 'written from src/'
echo '#include "base/error.h"' | put apps/a.c && must_fail apps/a.c 'k3.h only'
echo '#include "base/error.c"' | put src/base/a.c && must_fail src/base/a.c 'never included'
echo '#include "tables.inc"' | put tests/base/a.c && must_fail tests/base/a.c 'never included'
echo '#ifdef K3_HAVE_VULKAN' | put src/model/a.c && must_fail src/model/a.c 'backend conditionals'
echo '#if defined(__AVX2__)' | put apps/a.c && must_fail apps/a.c 'backend conditionals'
echo '#if defined(__x86_64__)' | put src/store/a.c && must_fail src/store/a.c 'architecture conditionals'
echo 'x = getenv("HOME");' | put src/base/a.c && must_fail src/base/a.c 'never prints'
echo '    printf("x");' | put src/engine/a.c && must_fail src/engine/a.c 'never prints'
echo 'if (x) exit(1);' | put src/io/a.c && must_fail src/io/a.c 'never prints'
echo 'fprintf(stderr, "x");' | put src/dist/a.c && must_fail src/dist/a.c 'stdout and stderr'
lines 801 | put src/base/a.c && must_fail src/base/a.c 'at most 800'
lines 801 | put tools/a.py && must_fail tools/a.py 'at most 800'
lines 261 | put include/k3.h && must_fail include/k3.h 'at most 260'
exit $failed
