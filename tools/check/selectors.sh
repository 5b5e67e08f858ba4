#!/bin/sh
# selectors.sh compile GENERATED FILE.m...: the Objective-C compiles for a Mac with an Apple processor, against our own headers for Metal and
# this system's for the rest. GENERATED is the build's folder of headers.
# selectors.sh compare APPLE [HEADERS]: our headers for Metal, and the selectors of the driver, agree with metal-cpp, Apple's C++ header, which
# lies in the folder APPLE.
# Both run in the repository root. Exit status 77, a skip, where the compiler cannot do it or Apple's header is not there.
set -eu
what=$1 place=$2
shift 2

if [ "$what" = compare ]; then
    [ -f "$place/Metal/MTLHeaderBridge.hpp" ] || {
        echo "Apple's metal-cpp is not in $place (tools/setup.sh test fetches it): our headers for Metal are compared with nothing"
        exit 77
    }
    exec python3 tools/check/selectors.py "$place" "${1:-tests/metal/include}" src/backend/metal/*.m
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
clang=$(command -v clang-14 || command -v clang || echo clang)
"$clang" -target arm64-apple-macos14 -c -x c /dev/null -o "$out/probe.o" 2>/dev/null || {
    echo "no clang that compiles for arm64-apple-macos14"
    exit 77
}
# The C library's headers ask for the processor that they were installed for, and want a name that Apple's clang has for itself.
set -- -D"__$(uname -m)__" -U__nonnull -U__nullable -Dst_mtimespec=st_mtim -I"$place" "$@"
for folder in /usr/include/*-linux-gnu; do
    [ ! -d "$folder/bits" ] || set -- -isystem "$folder" "$@"
done
bad=0 flags=
for word; do
    case $word in
    *.m)
        # shellcheck disable=SC2086
        "$clang" -target arm64-apple-macos14 -std=c11 -fno-objc-arc -Wall -Wextra -Wshadow -Werror -D_GNU_SOURCE -Itests/metal/include -Isrc -Iinclude \
            $flags -c "$word" -o "$out/$(basename "$word").o" || bad=1
        ;;
    *) flags="$flags $word" ;;
    esac
done
exit $bad
