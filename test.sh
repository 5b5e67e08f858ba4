#!/bin/sh
# Installs what is missing, builds with gcc and clang, and runs every test and check. The last line is "N passed, N failed, N skipped".
set -eu
cd "$(dirname "$0")"
started=$(date +%s)
sh tools/setup.sh test
mkdir -p build

cores=$(getconf _NPROCESSORS_ONLN)
passed=0 failed=0 skipped=0 leave_out='no test'
say() {
    printf '== %s (%d s)\n' "$1" $(($(date +%s) - started))
}

# check NAME COMMAND...: one more test; exit status 77 is a skip
check() {
    name=$1
    shift
    rc=0
    "$@" >build/check.log 2>&1 || rc=$?
    case $rc in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) && echo "skipped: $name: $(cat build/check.log)" ;;
    *) failed=$((failed + 1)) && echo "failed:  $name" && cat build/check.log ;;
    esac
}

# suite PRESET [TEST...]: builds a preset and runs all of its tests, or these
suite() {
    preset=$1
    shift
    pattern=$(echo "${*:-.}" | sed 's/ /$|/g')\$
    say "building $preset"
    log=build/$preset.log
    if ! { cmake --preset "$preset" -DK3_TESTS=ON && cmake --build --preset "$preset" ${1:+--target "$@"}; } >"$log" 2>&1; then
        failed=$((failed + 1))
        echo "failed:  the $preset build"
        grep -E -A5 'error|FAILED|CMake Error' "$log" | head -60
        return
    fi
    say "testing $preset"
    ctest --test-dir "build/$preset" -V -j "$cores" -R "$pattern" -E "$leave_out" >"$log" 2>&1 || true
    counts=$(awk -f tools/check/count.awk "$log")
    printf '%s\n' "$counts" | sed '$d'
    # shellcheck disable=SC2046
    set -- $(printf '%s\n' "$counts" | tail -n 1)
    if [ $(($1 + $2 + $3)) = 0 ]; then
        failed=$((failed + 1))
        echo "failed:  $preset ran no test; the log is $log"
    fi
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    echo "$preset: $1 passed, $2 failed, $3 skipped"
}

# beside PRESET [TEST...]: the same in the background, for what would leave a core idle; join PRESET: its output and counts
beside() {
    rm -f "build/$1.counts"
    (
        passed=0 failed=0 skipped=0
        suite "$@" >"build/$1.said" 2>&1
        echo "$passed $failed $skipped" >"build/$1.counts"
    ) &
}
join() {
    wait
    cat "build/$1.said"
    # shellcheck disable=SC2046
    set -- $(cat "build/$1.counts")
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

say checks
check 'include table and house rules' sh tools/check/includes.sh .
check 'the include check can fail' sh tools/check/test_includes.sh
check 'the counting of tests can fail' sh tools/check/test_count.sh
check 'format' sh tools/check/format.sh .
check 'kernels are valid SPIR-V, and Metal can be made of them' sh tools/check/shaders.sh .
check 'the kernel check can fail' sh tools/check/test_shaders.sh
check "the kernels' text for Metal is what is made of them, and keeps to the rules" sh tools/check/metal.sh .
check "the check of Metal's text can fail" sh tools/check/test_metal.sh
check 'our headers for Metal can be found wrong' sh tools/check/test_selectors.sh
check 'our headers for Metal agree with metal-cpp' sh tools/check/selectors.sh compare .venv/metal_cpp
suite release
# Cases J01 and J20: no OpenMP, and one build for a Mac too.
check 'the Metal driver compiles for a Mac' sh tools/check/selectors.sh compile build/release/shaders src/backend/metal/*.m
# The bundled model's answers, and those of random configurations at every level, say nothing about memory that other tests do not, and take
# minutes under a sanitizer; so do numbers that a software device computes, and its faults. Kernels are held to their bounds by test_kernel_fuzz.
leave_out='test_mini|test_precision|test_ahead|test_golden_model|test_vulkan_(jobs|model|moe|mla|matmul)|test_metal_(model|calls)|test_sample$|test_tiers|test_devices|test_ops|test_vulkan_faults|test_bench|test_recovery|test_trunk'
suite asan
leave_out='no test'
# Kernels of another architecture, in an emulator. Case J02: by a compiler whose base is armv8-a.
has_aarch64=no
if [ -d .venv/aarch64 ] && command -v qemu-aarch64 >/dev/null; then
    has_aarch64=yes
    beside aarch64 test_simd test_kernel_fuzz test_vec_math test_decode test_services
fi
# Threads meet in the pool, in the passes of an engine, and in groups of a kernel.
suite tsan test_pool test_session test_metal_barriers
[ $has_aarch64 = no ] || join aarch64
check 'the openai and anthropic packages' .venv/bin/python3 tests/clients/sdk.py build/release/k3
check 'the page in Chromium' .venv/bin/python3 tests/clients/page.py build/release/k3
check 'an old compiler leaves kernels out' sh tools/check/old_compiler.sh
check 'kernels fetch ahead' sh tools/check/prefetch.sh build/release
check 'what is installed works' sh tools/check/install.sh build/release
check 'the bundled model adds on NEON' sh tools/check/neon.sh
say clang-tidy
check 'clang-tidy' sh tools/check/tidy.sh build/asan
say done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
