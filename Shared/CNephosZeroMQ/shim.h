#pragma once

// libzmq, and the few Linux calls that the bus loop needs and that Swift's
// Glibc module does not carry.
#include <netinet/in.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <zmq.h>

// RLIMIT_NOFILE is an enumerator in C and has another type in Swift on each libc.
static inline int nephos_raise_descriptor_limit(unsigned long *limit) {
    struct rlimit limits;
    if (getrlimit(RLIMIT_NOFILE, &limits) != 0) return -1;
    limits.rlim_cur = limits.rlim_max;
    int result = setrlimit(RLIMIT_NOFILE, &limits);
    *limit = (unsigned long)limits.rlim_cur;
    return result;
}

// Bytes of its own that the process may have; ULONG_MAX: no limit.
static inline unsigned long nephos_data_limit(void) {
    struct rlimit limits;
    return getrlimit(RLIMIT_DATA, &limits) == 0 ? limits.rlim_cur : RLIM_INFINITY;
}

// What the kernel knows of a TCP connection since it was made.
struct nephos_tcp_counters {
    // Bytes that arrived in order, read or not.
    uint64_t received;
    // Bytes sent that the other end has acknowledged.
    uint64_t acknowledged;
};

// The fields of the kernel's tcp_info (linux/tcp.h) as far as these two, which
// the C library's own declaration lacks.
static inline int nephos_tcp_counters_of(int descriptor, struct nephos_tcp_counters *counters) {
    struct {
        uint8_t state[8];
        uint32_t times[24];
        uint64_t rates[2];
        uint64_t acknowledged;
        uint64_t received;
    } info;
    socklen_t size = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, 11 /* TCP_INFO */, &info, &size) != 0) return -1;
    if (size < sizeof info) return -1;
    counters->received = info.received;
    counters->acknowledged = info.acknowledged;
    return 0;
}

// A number that the kernel gives a socket and never again; 0: this is none.
static inline uint64_t nephos_socket_cookie(int descriptor) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(descriptor, SOL_SOCKET, 57 /* SO_COOKIE */, &cookie, &size) == 0 ? cookie : 0;
}

// Bytes that a connection was given and its other end has not acknowledged; -1: this is none.
static inline int nephos_unacknowledged(int descriptor) {
    int count = 0;
    return ioctl(descriptor, 0x5411 /* SIOCOUTQ */, &count) == 0 ? count : -1;
}
