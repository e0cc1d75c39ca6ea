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

// Gives a file another place, unless something is there (RENAME_NOREPLACE).
static inline int move_file(const char *one, const char *other) {
    return (int)syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 1);
}

// When a file was made, in nanoseconds since 1970; 0: the file system does not
// say. The names of struct statx are not in every library of C; its layout is
// the kernel's.
static inline long long file_birth(const char *path) {
    unsigned long long answer[32] = {0};
    unsigned int mask, nanoseconds;
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 0x800, answer) != 0) return 0;
    __builtin_memcpy(&mask, answer, sizeof mask);
    __builtin_memcpy(&nanoseconds, answer + 11, sizeof nanoseconds);
    return mask & 0x800 ? (long long)(answer[10] * 1000000000ULL + nanoseconds) : 0;
}
