#pragma once

#include <sys/vfs.h>

// What the system's headers show only to those who ask for its own extensions,
// which Swift does not.
int syncfs(int descriptor);
int sync_file_range(int descriptor, long long offset, long long count, unsigned int flags);
