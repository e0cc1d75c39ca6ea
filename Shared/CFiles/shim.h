#pragma once

#include <sys/vfs.h>

// What the system's headers show only to those who ask for its own extensions,
// which Swift does not.
int syncfs(int descriptor);
int sync_file_range(int descriptor, long long offset, long long count, unsigned int flags);
int renameat2(int fromFolder, const char *from, int toFolder, const char *to, unsigned int flags);

#include <sys/xattr.h>
