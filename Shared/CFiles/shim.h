#pragma once

// What the system's headers show only to those who ask for its own extensions,
// which Swift does not.
int syncfs(int descriptor);
int renameat2(int fromFolder, const char *from, int toFolder, const char *to, unsigned int flags);

#include <sys/xattr.h>
