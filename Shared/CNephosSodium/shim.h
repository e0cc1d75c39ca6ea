#pragma once

// libsodium, which libzmq's CURVE rests on too: for AES-256-GCM with a key that
// is prepared once.
#include <sodium.h>
