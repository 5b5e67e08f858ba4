/* Who may ask: the Host header against names that point here by another's will, the Origin header against web pages, the key. */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "http.h"

/* Whether `text` [n] is one of the names between commas, or * is. */
static int is_listed(const char *list, const char *text, size_t n)
{
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        if ((length == n && strncasecmp(at, text, n) == 0) || (length == 1 && *at == '*'))
            return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

/* The name of "name:port" or "[address]:port". */
static size_t host_length(const char *host)
{
    const char *bracket = *host == '[' ? strchr(host, ']') : NULL;
    return bracket ? (size_t)(bracket - host) + 1 : strcspn(host, ":");
}

/* An address cannot be pointed here by somebody's name server; localhost is always this machine. */
static int host_is_safe(const char *host, size_t n)
{
    char text[64], address[16];
    int is_six = *host == '[' && n > 2;
    size_t from = is_six ? 1 : 0, length = is_six ? n - 2 : n;
    if (n == 9 && strncasecmp(host, "localhost", 9) == 0)
        return 1;
    if (length >= sizeof text)
        return 0;
    memcpy(text, host + from, length);
    text[length] = 0;
    return inet_pton(is_six ? AF_INET6 : AF_INET, text, address) == 1;
}

static int is_own_origin(const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");
    return at && host && strcasecmp(at + 3, host) == 0;
}

/* Takes as long for every key of a length, whatever it begins with. */
static int same_key(const char *given, size_t n_given, const char *key)
{
    size_t n = strlen(key);
    volatile unsigned char differ = n != n_given;
    for (size_t i = 0; i < n_given; i++)
        differ |= (unsigned char)(given[i] ^ key[n ? i % n : 0]);
    return !differ;
}

static int has_key(const app_buffer *keys, const char *given)
{
    int found = 0;
    size_t n = given ? strlen(given) : 0;
    for (size_t at = 0; at < keys->n; at += strlen(keys->text + at) + 1)
        found |= n > 0 && same_key(given, n, keys->text + at);
    return found;
}

static int check_key(const app_buffer *keys, struct MHD_Connection *mhd, srv_problem *problem)
{
    const char *bearer = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Authorization");
    const char *plain = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "x-api-key");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
        bearer += 7;
    if (has_key(keys, bearer) | has_key(keys, plain))
        return 1;
    return srv_deny(problem, 401, "invalid_api_key", "%s",
                    bearer || plain ? "the key is wrong" : "a key is wanted, as Authorization: Bearer KEY or x-api-key: KEY");
}

int srv_access_check(const srv_config *config, struct MHD_Connection *mhd, const srv_route *route, app_buffer *origin, srv_problem *problem)
{
    const char *host = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Host");
    const char *page = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "Origin");
    size_t n_host = host ? host_length(host) : 0;
    if (host && !host_is_safe(host, n_host) && !is_listed(config->allow_hosts, host, n_host))
        return srv_deny(problem, 403, "host_not_allowed", "the Host \"%.100s\" is not served; --allow-host lists further names", host);
    if (page && !is_own_origin(page, host)) {
        if (!is_listed(config->cors_origins, page, strlen(page)))
            return srv_deny(problem, 403, "origin_not_allowed", "web pages of \"%.100s\" may not ask; --cors-origin lists those that may",
                            page);
        app_buffer_text(origin, page);
    }
    return !config->keys || !route || route->is_open || check_key(config->keys, mhd, problem);
}
