#!/bin/sh
# compile.sh [ROOT]: Apple's compiler takes every kernel, function constants left open. Exit status 77, a skip, where it is missing.
set -eu
cd "${1:-.}"
if ! xcrun -sdk macosx -f metal >/dev/null 2>&1; then
    echo "Apple's Metal compiler is not installed"
    exit 77
fi
bad=0
for file in src/backend/metal/*.metal src/backend/metal/msl/*.metal; do
    xcrun -sdk macosx metal -std=metal3.0 -mmacosx-version-min=13.0 -fno-fast-math -Wall -Wno-unused -c "$file" -o /dev/null || bad=1
done
exit $bad
