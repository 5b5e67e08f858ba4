#!/bin/sh
# tidy.sh BUILD: clang-tidy with the checks of .clang-tidy over what BUILD/compile_commands.json compiles. Exit status 77: it is not here.
set -eu
cd "$(dirname "$0")/../.."
build=$1
tidy=
for name in clang-tidy-14 clang-tidy; do
    if command -v $name >/dev/null; then
        tidy=$name
        break
    fi
done
if [ -z "$tidy" ]; then
    echo "tidy: clang-tidy is not here" >&2
    exit 77
fi
jobs=$(getconf _NPROCESSORS_ONLN)
find src apps -name '*.c' | sort | while read -r file; do
    # Files of another architecture are not in this build.
    if grep -q "/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done | xargs -P "$jobs" -n 4 "$tidy" -p "$build" --quiet --warnings-as-errors='*' 2>/dev/null
