# `k3 serve`: the server's parts as a library, with the page at / as bytes in a C file. Without libmicrohttpd the verb says what is missing.
#
# As a script (-P, with PAGE and OUT) this file makes the C file.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${PAGE} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
  file(WRITE ${OUT} "/* Made by cmake/server.cmake. */\n#include \"server/page.h\"\n\nconst char srv_page[] = {\n${bytes}0};\nconst size_t srv_page_bytes = sizeof srv_page - 1;\n")
  return()
endif()

pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.71)
if(NOT MICROHTTPD_FOUND)
  message(STATUS "libmicrohttpd was not found: `k3 serve` is left out")
  return()
endif()

set(page ${CMAKE_BINARY_DIR}/page/page.c)
add_custom_command(OUTPUT ${page}
  COMMAND ${CMAKE_COMMAND} -DPAGE=${CMAKE_SOURCE_DIR}/apps/server/page.html -DOUT=${page} -P ${CMAKE_SOURCE_DIR}/cmake/server.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/apps/server/page.html ${CMAKE_SOURCE_DIR}/cmake/server.cmake VERBATIM)
file(GLOB server_sources CONFIGURE_DEPENDS apps/server/*.c)
get_target_property(scheduler_sources k3_scheduler SOURCES)
list(TRANSFORM scheduler_sources PREPEND ${CMAKE_SOURCE_DIR}/)
list(REMOVE_ITEM server_sources ${scheduler_sources})
add_library(k3_server STATIC ${server_sources} ${page} apps/buffer.c apps/json.c)
target_include_directories(k3_server PUBLIC ${CMAKE_SOURCE_DIR}/apps)
target_link_libraries(k3_server PUBLIC k3_scheduler PkgConfig::MICROHTTPD)
