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

// What statx(2) says of a file; times in nanoseconds since 1970.
struct file_facts {
    unsigned int mode, links;
    unsigned long long inode, size, device, mount;
    long long born, changed, modified;
};

static inline long long file_time(const unsigned char *at) {
    long long seconds, sum;
    unsigned int rest;
    __builtin_memcpy(&seconds, at, sizeof seconds);
    __builtin_memcpy(&rest, at + 8, sizeof rest);
    if (__builtin_mul_overflow(seconds, 1000000000LL, &sum) || __builtin_add_overflow(sum, (long long)rest, &sum))
        return seconds < 0 ? -0x7fffffffffffffffLL - 1 : 0x7fffffffffffffffLL;
    return sum;
}

// Of a name in a folder, without following a link; of the descriptor itself
// where the name is empty. `born` is 0 where the file system does not say, and
// `mount` where the kernel (before 5.8) does not.
static inline int file_facts_at(int folder, const char *name, struct file_facts *facts) {
    unsigned char answer[256] = {0};
    unsigned int mask, major, minor;
    unsigned short mode;
    // AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH; the basic fields, birth and mount.
    if (syscall(SYS_statx, folder, name, 0x100 | 0x1000, 0x7ff | 0x800 | 0x1000, answer) != 0) return -1;
    __builtin_memcpy(&mask, answer, sizeof mask);
    __builtin_memcpy(&facts->links, answer + 16, sizeof facts->links);
    __builtin_memcpy(&mode, answer + 28, sizeof mode);
    __builtin_memcpy(&facts->inode, answer + 32, sizeof facts->inode);
    __builtin_memcpy(&facts->size, answer + 40, sizeof facts->size);
    __builtin_memcpy(&major, answer + 136, sizeof major);
    __builtin_memcpy(&minor, answer + 140, sizeof minor);
    facts->mode = mode;
    facts->born = mask & 0x800 ? file_time(answer + 80) : 0;
    facts->changed = file_time(answer + 96);
    facts->modified = file_time(answer + 112);
    facts->device = (unsigned long long)major << 32 | minor;
    facts->mount = 0;
    if (mask & 0x1000) __builtin_memcpy(&facts->mount, answer + 144, sizeof facts->mount);
    return 0;
}

// Opens a path beneath a folder, without following any link and without
// leaving the folder's mount (openat2(2), Linux 5.6).
static inline int open_beneath(int folder, const char *path, int flags, unsigned int mode) {
    unsigned long long how[3] = {(unsigned int)flags, flags & (O_CREAT | 020000000) ? mode : 0,
        // RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH
        0x01 | 0x02 | 0x04 | 0x08};
    return (int)syscall(437, folder, path, how, sizeof how);
}

// renameat2(2): 0 replaces, 1 fails with EEXIST, 2 exchanges.
static inline int rename_beneath(int from, const char *name, int to, const char *other, unsigned int flags) {
    return (int)syscall(SYS_renameat2, from, name, to, other, flags);
}

#include <errno.h>
#include <sys/inotify.h>

static inline int inotify_open(void) { return inotify_init1(IN_NONBLOCK | IN_CLOEXEC); }

// What may change a file, a name or an attribute in a folder.
static inline int inotify_watch(int descriptor, const char *path) {
    return inotify_add_watch(descriptor, path,
        IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR |
            IN_EXCL_UNLINK);
}

// Whether any process has a file open for writing: then it gets no read lease
// (F_SETLEASE). The lease is given back at once. 0 where there are none.
static inline int is_open_for_writing(int descriptor) {
    if (fcntl(descriptor, 1024, F_RDLCK) == 0) {
        fcntl(descriptor, 1024, F_UNLCK);
        return 0;
    }
    return errno == EAGAIN;
}
