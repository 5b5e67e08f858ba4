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

# name_of CHECK APT DNF BREW: sets `name` to the package's name for this manager, "-" where nothing is to be installed
name_of() {
    name=-
    if ! sh -c "$1" >/dev/null 2>&1; then
        case $manager in
        apt) name=$2 ;;
        dnf) name=$3 ;;
        brew) name=$4 ;;
        none) name=$2 ;;
        esac
    fi
}

missing='' useful=''
need() {
    name_of "$@"
    [ "$name" = - ] || missing="$missing $name"
}
# The same for what the build does without.
want() {
    name_of "$@"
    [ "$name" = - ] || useful="$useful $name"
}

need 'command -v cc && echo "int main(void){return 0;}" | cc -x c - -o /dev/null' 'gcc libc6-dev' 'gcc glibc-devel' -
need 'command -v cmake' cmake cmake cmake
need 'command -v ninja' ninja-build ninja-build ninja
need 'command -v pkg-config' pkg-config pkgconf-pkg-config pkg-config
need 'pkg-config --exists libpcre2-8' libpcre2-dev pcre2-devel pcre2
need 'pkg-config --exists libedit || test -f /usr/include/histedit.h' libedit-dev libedit-devel -
# Without it files are read by threads.
[ "$(uname)" != Linux ] || want 'pkg-config --exists liburing' liburing-dev liburing-devel -
# `k3 pull` is left out where these are missing.
want 'pkg-config --exists libcurl' libcurl4-openssl-dev libcurl-devel -
want 'pkg-config --exists libcrypto' libssl-dev openssl-devel openssl
# `k3 serve` is left out where this is missing.
want 'pkg-config --exists libmicrohttpd' libmicrohttpd-dev libmicrohttpd-devel libmicrohttpd
# The Vulkan backend is left out where these are missing. The loader and a driver are looked for when k3 runs.
want 'command -v glslc' glslc glslc -
want 'test -f /usr/include/volk.c || test -f /usr/include/volk/volk.c' libvulkan-volk-dev vulkan-volk-devel -
want 'test -f /usr/include/vulkan/vulkan_core.h' libvulkan-dev 'vulkan-headers vulkan-loader-devel' -
if [ "$what" = test ]; then
    need 'command -v gcc' gcc gcc -
    need 'command -v clang' clang clang llvm
    need 'echo "int main(void){return 0;}" | clang -fsanitize=address -x c - -o /dev/null' libclang-rt-14-dev compiler-rt -
    need 'pkg-config --exists cmocka' libcmocka-dev libcmocka-devel cmocka
    need 'command -v clang-format-14 || command -v clang-format' clang-format-14 clang-tools-extra clang-format
    need 'command -v clang-tidy-14 || command -v clang-tidy' clang-tidy-14 clang-tools-extra llvm
    # A software device, and what watches how it is used.
    want 'ls /usr/share/vulkan/icd.d/lvp_icd*.json' mesa-vulkan-drivers mesa-vulkan-drivers -
    want 'test -f /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json' vulkan-validationlayers vulkan-validation-layers -
    want 'command -v spirv-val' spirv-tools spirv-tools -
    want 'command -v spirv-cross' spirv-cross spirv-cross -
    # The Metal driver is tested on this runtime, with a Metal of our own.
    want 'echo "int main(void){return 0;}" | clang -x c - -lobjc -o /dev/null' libobjc-12-dev gcc-objc -
    # The build for aarch64 is tested in an emulator.
    [ "$(uname -sm)" != 'Linux x86_64' ] || want 'command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64' \
        'gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user' - -
    need 'python3 -c "import venv, ensurepip"' 'python3 python3-venv' python3 python3
fi

root=
if [ -n "$missing$useful" ] && [ "$manager" != brew ] && [ "$(id -u)" != 0 ]; then
    root=sudo
    if ! command -v sudo >/dev/null; then
        [ -z "$missing" ] || echo "setup: these packages are missing:$missing. Install them as root, or install sudo." >&2
        [ -z "$missing" ] || exit 1
        echo "setup: these packages would be useful:$useful. Install them as root, or install sudo." >&2
        useful=
    fi
fi

updated=
# install PACKAGE...
install() {
    echo "setup: installing $*" >&2
    case $manager in
    apt)
        [ -n "$updated" ] || $root apt-get update -qq >&2
        updated=1
        $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
        ;;
    dnf) $root dnf install -y -q "$@" >&2 ;;
    brew) brew install "$@" ;;
    none)
        echo "setup: no apt-get, dnf or brew here; install what matches the Debian packages $*" >&2
        return 1
        ;;
    esac
}

# The lists are one word a package.
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing
# shellcheck disable=SC2086
[ -z "$useful" ] || install $useful || echo "setup: without$useful there is no Vulkan backend, no io_uring or no k3 pull, or a part of the tests is skipped" >&2

# Comparisons against the tiktoken and safetensors packages are skipped, and counted, where they cannot be had.
packages='numpy safetensors tiktoken openai anthropic playwright'
if [ "$what" = test ] && ! .venv/bin/python -c "import $(echo $packages | tr ' ' ,)" >/dev/null 2>&1; then
    echo "setup: making .venv with $packages" >&2
    # shellcheck disable=SC2086
    python3 -m venv .venv && .venv/bin/python -m pip install -q $packages >&2 ||
        echo "setup: .venv could not be filled; the tests that need it are skipped" >&2
fi

# Our headers for Metal are compared with Apple's metal-cpp, which this package for Macs carries.
if [ "$what" = test ] && ! [ -d .venv/metal_cpp ]; then
    echo "setup: fetching metal-cpp" >&2
    wheel=$(mktemp -d)
    if .venv/bin/python -m pip download -q --no-deps --only-binary=:all: --platform macosx_14_0_arm64 -d "$wheel" mlx-metal==0.32.4 >&2 &&
        .venv/bin/python -m zipfile -e "$wheel"/*.whl "$wheel" && [ -d "$wheel/mlx/include/metal_cpp" ]; then
        mv "$wheel/mlx/include/metal_cpp" .venv/metal_cpp
    else
        echo "setup: metal-cpp could not be had; the comparison with it is skipped" >&2
    fi
    rm -rf "$wheel"
fi

# Libraries of the other architecture are unpacked beside the build, by package lists of their own: installing them would change the machine.
if [ "$what" = test ] && [ $manager = apt ] && command -v aarch64-linux-gnu-gcc >/dev/null && ! [ -d .venv/aarch64 ]; then
    echo "setup: fetching libraries for aarch64" >&2
    debs=$(mktemp -d)
    mkdir -p "$debs/lists/partial" "$debs/cache/archives/partial"
    arm_apt() {
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State::lists="$debs/lists" \
            -o Dir::Cache="$debs/cache" "$@" >&2
    }
    if (cd "$debs" && arm_apt update && arm_apt download libcmocka0 libcmocka-dev libpcre2-8-0 libpcre2-dev &&
        for deb in *.deb; do dpkg-deb -x "$deb" root || exit 1; done); then
        mkdir -p .venv && mv "$debs/root" .venv/aarch64
    else
        echo "setup: libraries for aarch64 could not be had; its tests are skipped" >&2
    fi
    rm -rf "$debs"
fi
