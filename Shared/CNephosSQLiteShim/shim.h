#pragma once

// What Swift cannot call of SQLite, because it takes any number of arguments.
// Declared here and not included, so that GRDB's module stays the one that has
// SQLite's types.
int sqlite3_config(int option, ...);

/// Without its accounts of memory, SQLite takes no lock for each allocation.
/// Has an effect only before the first database is opened.
static inline int nephos_sqlite_disable_memory_accounts(void) {
    return sqlite3_config(/* SQLITE_CONFIG_MEMSTATUS */ 9, 0);
}
