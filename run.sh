#!/bin/sh
# Installs what is missing, builds k3 and has the bundled model answer three questions.
set -eu
cd "$(dirname "$0")"
sh tools/setup.sh run
cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DK3_TESTS=OFF >/dev/null
ninja -C build/release k3 >&2

k3=build/release/k3
model=models/k3-mini
ask() {
    printf '\n> %s\n' "$1"
    $k3 run $model --chat --temp 0 -p "$1"
}
ask 'What is the capital of France?'
ask 'What is 58 plus 67?'
printf '\n> %s\n' 'What is the weather in Paris?   (with a tool, get_weather)'
$k3 run $model --chat --temp 0 --request - <<'JSON'
{"messages": [{"role": "user", "content": "What is the weather in Paris?"}],
 "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]}
JSON
printf '\nTry it: %s chat %s\n' $k3 $model
