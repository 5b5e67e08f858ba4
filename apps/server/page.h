/* The page at /, apps/server/page.html as bytes; made by the build. */
#ifndef K3_APPS_SERVER_PAGE_H
#define K3_APPS_SERVER_PAGE_H

#include <stddef.h>

extern const char srv_page[];
extern const size_t srv_page_bytes;

#endif
