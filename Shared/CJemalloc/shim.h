#pragma once

// jemalloc in the place of libc's malloc, for what is allocated on one thread
// and freed on another, as every message is: libzmq's threads receive it and
// the loop lets go of it. Linking it is enough.
#include <jemalloc/jemalloc.h>
