#!/bin/sh
# neon.sh: the bundled model on cpu:neon, built for aarch64 and run in an emulator. Exit status 77: what that needs is not here.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null || ! [ -d .venv/aarch64 ]; then
    echo "neon: no cross compiler for aarch64, no emulator or no libraries of it (tools/setup.sh test)"
    exit 77
fi
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target k3
answer=$(qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/k3 run models/k3-mini --backend cpu:neon --chat --temp 0 -p 'What is 58 plus 67?')
echo "$answer"
[ "$answer" = '58 + 67 = 125' ]
