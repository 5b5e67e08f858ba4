# Short names for the CMake presets. README.md says what they need; ./run.sh and ./test.sh install it.
.PHONY: build test asan tsan fuzz format check install clean
SOURCES = $(shell find src include apps tests bench examples -name '*.c' -o -name '*.h')
SECONDS ?= 300
PREFIX ?= /usr/local

build:
	cmake --preset release >/dev/null && cmake --build --preset release

test:
	./test.sh

asan tsan:
	cmake --preset $@ >/dev/null && cmake --build --preset $@ && ctest --test-dir build/$@ --output-on-failure

fuzz:
	cmake --preset fuzz >/dev/null && cmake --build --preset fuzz
	for f in build/fuzz/tests/fuzz_*; do [ -x $$f ] && [ -f $$f ] || continue; $$f -max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=4096 || exit 1; done

format:
	clang-format-14 -i $(SOURCES)

check:
	sh tools/check/includes.sh . && sh tools/check/format.sh . && sh tools/check/tidy.sh build/asan

install: build
	cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build
