# Builds for 64-bit ARM on a machine of another kind, with Debian's cross compiler; tests run in qemu's user mode. Libraries of that
# architecture lie in .venv/aarch64, where tools/setup.sh puts them: nothing of this machine fits.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

get_filename_component(k3_libraries ${CMAKE_CURRENT_LIST_DIR}/../.venv/aarch64 ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${k3_libraries} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${k3_libraries})
set(ENV{PKG_CONFIG_LIBDIR} ${k3_libraries}/usr/lib/aarch64-linux-gnu/pkgconfig)
