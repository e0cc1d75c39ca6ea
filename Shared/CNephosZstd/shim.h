#pragma once

// Zstandard, for chunks on their way and at rest.
#include <zstd.h>
