#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server.h"

srv_config srv_config_standard(void)
{
    return (srv_config){.body_limit = 64 << 20, .silence = 10, .idle = 75, .body = 300, .write = 600};
}

static int fail(k3_error *err, const char *host, int port, const char *why)
{
    err->status = K3_E_IO;
    snprintf(err->text, sizeof err->text, "%s port %d: %s", host, port, why);
    return -1;
}

int srv_listen(const char *host, int *port, k3_error *err)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
    struct sockaddr_storage bound;
    socklen_t n_bound = sizeof bound;
    char service[16];
    snprintf(service, sizeof service, "%d", *port);
    int wrong = getaddrinfo(host, service, &hints, &found);
    if (wrong)
        return fail(err, host, *port, gai_strerror(wrong));
    int fd = socket(found->ai_family, found->ai_socktype, 0), one = 1;
    /* A server that was stopped a moment ago is no reason to wait; one that still listens is. */
    int ok = fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
             bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 256) == 0 &&
             getsockname(fd, (struct sockaddr *)&bound, &n_bound) == 0;
    int number = errno;
    freeaddrinfo(found);
    if (!ok) {
        if (fd >= 0)
            close(fd);
        return fail(err, host, *port, strerror(number));
    }
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port : ((struct sockaddr_in *)&bound)->sin_port);
    return fd;
}
