#pragma once

// jemalloc in the place of libc's malloc, for what is allocated on one thread
// and freed on another, as every message is: libzmq's threads receive it and
// the loop lets go of it. Linking it is enough.
#include <jemalloc/jemalloc.h>

#include <sys/resource.h>

// RLIMIT_DATA is an enumerator in C and has another type in Swift on each libc.
// What the limit leaves of an older one stays.
static inline int nephos_limit_memory(unsigned long bytes) {
    struct rlimit limits;
    if (getrlimit(RLIMIT_DATA, &limits) != 0) return -1;
    if (limits.rlim_max != RLIM_INFINITY && limits.rlim_max < bytes) return 0;
    limits.rlim_cur = bytes;
    return setrlimit(RLIMIT_DATA, &limits);
}

// The limit that is in force; ULONG_MAX: none.
static inline unsigned long nephos_memory_limit(void) {
    struct rlimit limits;
    return getrlimit(RLIMIT_DATA, &limits) == 0 ? limits.rlim_cur : RLIM_INFINITY;
}

static inline unsigned long nephos_descriptor_limit(void) {
    struct rlimit limits;
    return getrlimit(RLIMIT_NOFILE, &limits) == 0 ? limits.rlim_cur : 0;
}
