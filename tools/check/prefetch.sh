#!/bin/sh
# prefetch.sh BUILD: kernels that fetch ahead still do once they are compiled. gcc drops a prefetch whose wrapper is not inlined early, which
# no test of results can see and which costs half the speed.
set -eu
command -v objdump >/dev/null || {
    echo "prefetch: objdump is not here"
    exit 77
}
failed=0
for source in src/backend/cpu/x86/*.c; do
    text=$(sed -n 's/^#include "\(backend\/cpu\/vec\/[a-z0-9_]*_body\.h\)"$/src\/\1/p' "$source")
    # shellcheck disable=SC2086
    grep -q 'vf_prefetch(' "$source" $text || continue
    object=$(find "$1" -path "*k3_backend.dir/*/${source#src/}.o")
    [ -z "$object" ] || objdump -d "$object" | grep -q prefetch || {
        echo "$object: no prefetch instruction, though $source asks for them"
        failed=1
    }
done
exit $failed
