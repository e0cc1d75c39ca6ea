#pragma once

#include <sys/vfs.h>

// What the system's headers show only to those who ask for its own extensions,
// which Swift does not.
int syncfs(int descriptor);
int sync_file_range(int descriptor, long long offset, long long count, unsigned int flags);
int fallocate(int descriptor, int mode, long long offset, long long count);

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

// Exchanges what is at two places, in one step (RENAME_EXCHANGE). Not every
// library of C has a function for it.
static inline int exchange_files(const char *one, const char *other) {
    return (int)syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 2);
}
