#pragma once

// libzmq, and the few Linux calls that the bus loop needs and that Swift's
// Glibc module does not carry.
#include <zmq.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

// RLIMIT_NOFILE is an enumerator in C and has another type in Swift on each libc.
static inline int nephos_raise_descriptor_limit(unsigned long *limit) {
    struct rlimit limits;
    if (getrlimit(RLIMIT_NOFILE, &limits) != 0) return -1;
    limits.rlim_cur = limits.rlim_max;
    int result = setrlimit(RLIMIT_NOFILE, &limits);
    *limit = (unsigned long)limits.rlim_cur;
    return result;
}
