#!/bin/sh
# Installs what is missing: `tools/setup.sh run` for building, `tools/setup.sh test` for testing too.
# Knows apt (Debian, Ubuntu), dnf (Fedora) and brew (macOS). What is there is left alone; nothing missing, nothing run.
set -eu
cd "$(dirname "$0")/.."
what=${1:-run}

if command -v apt-get >/dev/null; then
    manager=apt
elif command -v dnf >/dev/null; then
    manager=dnf
elif command -v brew >/dev/null; then
    manager=brew
else
    manager=none
fi

missing=
# need CHECK APT DNF BREW: the package's name for each manager, "-" where the system has the thing anyway
need() {
    if ! sh -c "$1" >/dev/null 2>&1; then
        case $manager in
        apt) name=$2 ;;
        dnf) name=$3 ;;
        brew) name=$4 ;;
        none) name=$2 ;;
        esac
        [ "$name" = - ] || missing="$missing $name"
    fi
}

need 'command -v cc && echo "int main(void){return 0;}" | cc -x c - -o /dev/null' 'gcc libc6-dev' 'gcc glibc-devel' -
need 'command -v cmake' cmake cmake cmake
need 'command -v ninja' ninja-build ninja-build ninja
need 'command -v pkg-config' pkg-config pkgconf-pkg-config pkg-config
need 'pkg-config --exists libpcre2-8' libpcre2-dev pcre2-devel pcre2
need 'pkg-config --exists libedit || test -f /usr/include/histedit.h' libedit-dev libedit-devel -
if [ "$what" = test ]; then
    need 'command -v gcc' gcc gcc -
    need 'command -v clang' clang clang llvm
    need 'echo "int main(void){return 0;}" | clang -fsanitize=address -x c - -o /dev/null' libclang-rt-14-dev compiler-rt -
    need 'pkg-config --exists cmocka' libcmocka-dev libcmocka-devel cmocka
    need 'command -v clang-format-14 || command -v clang-format' clang-format-14 clang-tools-extra clang-format
    need 'command -v clang-tidy-14 || command -v clang-tidy' clang-tidy-14 clang-tools-extra llvm
    need 'python3 -c "import venv, ensurepip"' 'python3 python3-venv' python3 python3
fi

if [ -n "$missing" ]; then
    root=
    if [ "$manager" != brew ] && [ "$(id -u)" != 0 ]; then
        root=sudo
        if ! command -v sudo >/dev/null; then
            echo "setup: these packages are missing:$missing. Install them as root, or install sudo." >&2
            exit 1
        fi
    fi
    echo "setup: installing$missing" >&2
    # The list is one word a package.
    # shellcheck disable=SC2086
    case $manager in
    apt)
        $root apt-get update -qq >&2
        $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
        ;;
    dnf) $root dnf install -y -q $missing >&2 ;;
    brew) brew install $missing >&2 ;;
    none)
        echo "setup: no apt-get, dnf or brew here; install what matches the Debian packages$missing" >&2
        exit 1
        ;;
    esac
fi

# Comparisons against the tiktoken package are skipped, and counted, where it cannot be had.
if [ "$what" = test ] && ! .venv/bin/python -c 'import numpy, tiktoken' >/dev/null 2>&1; then
    echo "setup: making .venv with numpy and tiktoken" >&2
    python3 -m venv .venv && .venv/bin/python -m pip install -q numpy tiktoken >&2 ||
        echo "setup: .venv could not be filled; the tests that need it are skipped" >&2
fi
