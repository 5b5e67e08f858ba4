#!/bin/sh
# includes.sh ROOT: who includes whom (the table of docs/architecture.md), and the house rules a grep can see.
# Prints one line a breach, FILE:LINE: what; exit status 1 if there is any.
set -eu
cd "${1:-.}"

sources=$(find src include apps tests bench tools -type f \( -name '*.c' -o -name '*.h' -o -name '*.m' -o -name '*.py' -o -name '*.sh' \) \
    2>/dev/null | grep -v -e __pycache__ | sort || true)

[ -n "$sources" ] || {
    echo "includes: no sources under $(pwd)" >&2
    exit 1
}

# shellcheck disable=SC2086
awk '
function bad(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; n_bad++ }
function allow(folder, list,   i, n, w) { n = split(list, w, " "); for (i = 1; i <= n; i++) may[folder, w[i]] = 1 }
function exists(path,   line, r) { r = (getline line < path) >= 0; close(path); return r }
BEGIN {
    allow("base", "base"); allow("io", "io base"); allow("ckpt", "ckpt base"); allow("backend", "backend base")
    allow("store", "store base io ckpt backend"); allow("dist", "dist base"); allow("model", "model base ckpt backend store dist")
    allow("text", "text base"); allow("sample", "sample base")
    allow("constrain", "constrain base text")
    allow("engine", "engine base io ckpt backend store dist model text sample constrain")
}
FNR == 1 {
    if (last_file != "" && last_line > 800) { printf "%s:%d: a file has at most 800 lines\n", last_file, last_line; n_bad++ }
    last_file = FILENAME
    split(FILENAME, part, "/")
    top = part[1]; folder = part[2]
    dir = FILENAME; sub(/[^\/]*$/, "", dir)
    is_c = FILENAME ~ /\.(c|h|m)$/
}
{ last_line = FNR }
FILENAME == "include/k3.h" && FNR == 261 { bad("the public header has at most 260 lines") }
!is_c { next }
/^[ \t]*#[ \t]*include/ {
    if (/\.(c|inc)[">]/) bad("a .c or .inc file is never included")
    if (match($0, /"[^"]*"/)) {
        name = substr($0, RSTART + 1, RLENGTH - 2)
        owner = name; sub(/\/.*/, "", owner)
        if (top == "src" && name != "k3.h") {
            if (name !~ /\//) bad("\"" name "\": includes are written from src/")
            else if (!((folder, owner) in may)) bad("src/" folder " may not include \"" name "\"")
        }
        if (top == "include") bad("k3.h includes nothing of ours")
        if (top == "apps" && name != "k3.h" && !exists(dir name) && !exists("apps/" name)) bad("apps may include k3.h only, not \"" name "\"")
    }
    next
}
/^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)/ && top != "tests" && !(top == "src" && folder == "backend") {
    if (/K3_HAVE_(AVX|NEON|SVE|AMX|VULKAN|METAL|CUDA)|__AVX|__SSE|__FMA__|__ARM_NEON|__ARM_FEATURE|VK_|__OBJC__/)
        bad("backend conditionals belong to src/backend")
    # src/base is where the machine is: how a core waits is an instruction.
    if (/__x86_64__|__i386__|__aarch64__/ && !(top == "src" && folder == "base")) bad("architecture conditionals belong to src/backend and src/base")
}
top == "src" {
    code = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", code); gsub(/\/\*.*\*\//, "", code)
    if (code ~ /^[ \t]*\/?\*/) next
    if (match(code, /(^|[^A-Za-z0-9_>.])(getenv|secure_getenv|setenv|putenv|printf|vprintf|puts|putchar|perror|exit|_exit|quick_exit|err|errx|warn|warnx)[ \t]*\(/))
        bad("library code never prints, exits or reads the environment")
    if (code ~ /(^|[^A-Za-z0-9_])(stdout|stderr)([^A-Za-z0-9_]|$)/) bad("library code does not know stdout and stderr")
}
END {
    if (last_line > 800) { printf "%s:%d: a file has at most 800 lines\n", last_file, last_line; n_bad++ }
    exit n_bad > 0
}' $sources
