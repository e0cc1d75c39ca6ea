#pragma once

// libzmq, and the few Linux calls that the bus loop needs and that Swift's
// Glibc module does not carry.
#include <zmq.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <pthread.h>

// pthread_setname_np is a GNU extension, hidden from Swift's Glibc overlay.
static inline void nephos_set_thread_name(const char *name) {
    extern int pthread_setname_np(pthread_t, const char *);
    pthread_setname_np(pthread_self(), name);
}
