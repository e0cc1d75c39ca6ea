internal import Storage

/// The history of this service's tables. What other services must know lies in
/// the feed besides (see `DirectoryEvents`).
enum IdentityMigrations {
    static let all = [
        Migration(
            name: "001-identity",
            statements: [
                """
                CREATE TABLE accounts (
                    account_id TEXT PRIMARY KEY,
                    name TEXT NOT NULL UNIQUE,
                    password_hash BLOB NOT NULL,
                    password_salt BLOB NOT NULL,
                    scrypt_rounds INTEGER NOT NULL,
                    scrypt_block_size INTEGER NOT NULL,
                    scrypt_parallelism INTEGER NOT NULL,
                    created_at INTEGER NOT NULL
                )
                """,
                """
                CREATE TABLE devices (
                    device_id TEXT PRIMARY KEY,
                    account_id TEXT NOT NULL REFERENCES accounts (account_id),
                    public_key TEXT NOT NULL,
                    name TEXT NOT NULL,
                    model TEXT NOT NULL,
                    platform TEXT NOT NULL,
                    enrolled_at INTEGER NOT NULL,
                    last_seen_at INTEGER NOT NULL,
                    state INTEGER NOT NULL
                )
                """,
                "CREATE INDEX devices_by_key ON devices (public_key)",
                // A key is one device at a time.
                "CREATE UNIQUE INDEX devices_by_active_key ON devices (public_key) WHERE state = 1",
                "CREATE INDEX devices_by_account ON devices (account_id, enrolled_at)",
                """
                CREATE TABLE apps (
                    app_id TEXT PRIMARY KEY,
                    name TEXT NOT NULL,
                    store_id TEXT NOT NULL
                )
                """,
                """
                CREATE TABLE app_containers (
                    app_id TEXT NOT NULL REFERENCES apps (app_id),
                    place INTEGER NOT NULL,
                    container_id TEXT NOT NULL,
                    PRIMARY KEY (app_id, place)
                )
                """,
                """
                CREATE TABLE refresh_families (
                    family_id BLOB PRIMARY KEY,
                    device_id TEXT NOT NULL UNIQUE REFERENCES devices (device_id),
                    salt BLOB NOT NULL,
                    token_hash BLOB NOT NULL,
                    previous_hash BLOB,
                    issued_by BLOB NOT NULL,
                    expires_at INTEGER NOT NULL
                )
                """,
            ])
    ]
}
