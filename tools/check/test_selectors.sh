#!/bin/sh
# The comparison with metal-cpp refuses one wrong header for each of its rules, and a driver that does not compile for a Mac. Exit status 77, a
# skip, where metal-cpp or the compiler is missing.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# refuses WORDS STATUS COMMAND...
refuses() {
    words=$1
    shift
    rc=0
    "$@" >"$tmp/out" 2>&1 || rc=$?
    [ $rc != 77 ] || { cat "$tmp/out" && exit 77; }
    if [ $rc != 1 ] || ! grep -q "$words" "$tmp/out"; then
        echo "$* let pass: $words: exit status $rc, $(cat "$tmp/out")"
        exit 1
    fi
}

# wrong WORDS EDIT: headers with that edit are refused
wrong() {
    rm -rf "$tmp/include"
    cp -r tests/metal/include "$tmp/include"
    sed -i "$2" "$tmp/include/Metal/Metal.h"
    ! cmp -s "$tmp/include/Metal/Metal.h" tests/metal/include/Metal/Metal.h || { echo "no effect: $2" && exit 1; }
    refuses "$1" sh tools/check/selectors.sh compare .venv/metal_cpp "$tmp/include"
}
wrong "MTLDevice newCommandQueues: Apple's class does not have it" 's/newCommandQueue;/newCommandQueues;/'
wrong 'newCommandQueue: sent, and not declared' 's/newCommandQueue;/newCommandQueues;/'
wrong 'MTLBuffer length: .*, Apple' 's/(readonly) NSUInteger length/(readonly) uint32_t length/'
wrong 'MTLDevice newBufferWithLength:options:: .*, Apple' 's/WithLength:(NSUInteger)length options/WithLength:(int)length options/'
wrong 'MTLDataTypeUInt: 34, Apple' 's/MTLDataTypeUInt = 33/MTLDataTypeUInt = 34/'
wrong 'MTLDispatchTypeSerial: 1, Apple' 's/MTLDispatchTypeSerial,/MTLDispatchTypeSerial = 1,/'
wrong 'MTLStorageMode: of type NSInteger, Apple' 's/NS_ENUM(NSUInteger, MTLStorageMode)/NS_ENUM(NSInteger, MTLStorageMode)/'

printf '#import <Metal/Metal.h>\nvoid f(id<MTLDevice> d);\nvoid f(id<MTLDevice> d)\n{\n    [d newCommandQueueue];\n}\n' >"$tmp/wrong.m"
refuses newCommandQueueue sh tools/check/selectors.sh compile "$tmp" "$tmp/wrong.m"
