internal import NephosStorage

/// The history of this service's tables. What other services must know lies in
/// the feed besides (see `DirectoryEvents`).
enum IdentityMigrations {
    static let all = [
        Migration(
            name: "identity",
            statements: [
                """
                CREATE TABLE accounts (
                    account_id TEXT PRIMARY KEY,
                    name TEXT NOT NULL UNIQUE,
                    password_hash BLOB NOT NULL,
                    password_salt BLOB NOT NULL,
                    scrypt_rounds BIGINT NOT NULL,
                    scrypt_block_size BIGINT NOT NULL,
                    scrypt_parallelism BIGINT NOT NULL,
                    created_at BIGINT NOT NULL,
                    locked BIGINT NOT NULL,
                    standing_version BIGINT NOT NULL,
                    plan_id TEXT NOT NULL
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
                    enrolled_at BIGINT NOT NULL,
                    last_seen_at BIGINT NOT NULL,
                    state BIGINT NOT NULL,
                    -- When it was revoked, and by the device of which name; 0: it was not, or nobody knows.
                    ended_at BIGINT NOT NULL,
                    ended_by TEXT NOT NULL,
                    policy_class BIGINT NOT NULL,
                    -- The app password that it signed in with; empty: the account's own.
                    app_password_id TEXT NOT NULL
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
                    store_id TEXT NOT NULL,
                    capabilities BIGINT NOT NULL,
                    version BIGINT NOT NULL,
                    removed BIGINT NOT NULL,
                    plan_id TEXT NOT NULL
                )
                """,
                """
                CREATE TABLE app_containers (
                    app_id TEXT NOT NULL REFERENCES apps (app_id),
                    place BIGINT NOT NULL,
                    container_id TEXT NOT NULL,
                    PRIMARY KEY (app_id, place)
                )
                """,
                """
                CREATE TABLE refresh_families (
                    family_id BLOB PRIMARY KEY,
                    device_id TEXT NOT NULL UNIQUE REFERENCES devices (device_id),
                    generation BIGINT NOT NULL,
                    token_hash BLOB NOT NULL,
                    previous_hash BLOB,
                    issued_by BLOB NOT NULL,
                    -- 24 bytes each.
                    earlier_requests BLOB NOT NULL,
                    expires_at BIGINT NOT NULL
                )
                """,
                """
                CREATE TABLE audit (
                    account_id TEXT NOT NULL,
                    number BIGINT NOT NULL,
                    recorded_at BIGINT NOT NULL,
                    -- An AuditEntry.
                    body BLOB NOT NULL,
                    PRIMARY KEY (account_id, number)
                ) WITHOUT ROWID
                """,
                """
                CREATE TABLE attempts (
                    -- Of whom: see AttemptStore.
                    subject BLOB NOT NULL PRIMARY KEY,
                    attempts BIGINT NOT NULL,
                    last_at BIGINT NOT NULL
                )
                """,
                "CREATE INDEX attempts_by_time ON attempts (last_at)",
                """
                CREATE TABLE closures (
                    account_id TEXT NOT NULL PRIMARY KEY,
                    closed_at BIGINT NOT NULL
                )
                """,
                """
                CREATE TABLE closure_reports (
                    account_id TEXT NOT NULL,
                    service TEXT NOT NULL,
                    done_at BIGINT NOT NULL,
                    PRIMARY KEY (account_id, service)
                )
                """,
                """
                CREATE TABLE signing_keys (
                    key_id TEXT NOT NULL PRIMARY KEY,
                    -- The private key, sealed; NULL once it signs no more.
                    sealed BLOB,
                    public_key BLOB NOT NULL,
                    signs_from BIGINT NOT NULL,
                    retires_at BIGINT NOT NULL
                )
                """,
                """
                CREATE TABLE plans (
                    plan_id TEXT NOT NULL PRIMARY KEY,
                    size_bytes BIGINT NOT NULL
                )
                """,
                "INSERT INTO plans (plan_id, size_bytes) VALUES ('standard', 5000000000)",
                "CREATE INDEX accounts_by_plan ON accounts (plan_id, account_id)",
                """
                CREATE TABLE plan_changes (
                    plan_id TEXT NOT NULL PRIMARY KEY,
                    -- The last owner who has heard of its size.
                    told TEXT NOT NULL
                )
                """,
                """
                CREATE TABLE allotments (
                    owner_id TEXT NOT NULL,
                    service TEXT NOT NULL,
                    revision BIGINT NOT NULL,
                    allotted BIGINT NOT NULL,
                    used BIGINT NOT NULL,
                    PRIMARY KEY (owner_id, service)
                )
                """,
                """
                CREATE TABLE recalls (
                    owner_id TEXT NOT NULL PRIMARY KEY,
                    count BIGINT NOT NULL,
                    recalled_at BIGINT NOT NULL
                )
                """,
                """
                CREATE TABLE container_definitions (
                    container_id TEXT NOT NULL PRIMARY KEY,
                    class TEXT NOT NULL,
                    folds_names BIGINT NOT NULL,
                    -- Empty: each app that lists it changes it.
                    writer_app TEXT NOT NULL,
                    version BIGINT NOT NULL,
                    -- 0: as the class says.
                    trash_days BIGINT NOT NULL,
                    version_days BIGINT NOT NULL,
                    -- Empty: it is recorded when the service starts.
                    owner_app TEXT NOT NULL,
                    -- Accounts' ids, with spaces between them.
                    administrators TEXT NOT NULL
                )
                """,
                """
                CREATE TABLE app_tokens (
                    token_id TEXT NOT NULL PRIMARY KEY,
                    app_id TEXT NOT NULL,
                    container_id TEXT NOT NULL,
                    hash BLOB NOT NULL,
                    created_at BIGINT NOT NULL
                )
                """,
                "CREATE INDEX app_tokens_by_app ON app_tokens (app_id, created_at)",
                """
                CREATE TABLE app_passwords (
                    password_id TEXT NOT NULL PRIMARY KEY,
                    account_id TEXT NOT NULL,
                    name TEXT NOT NULL,
                    scope BIGINT NOT NULL,
                    hash BLOB NOT NULL,
                    created_at BIGINT NOT NULL,
                    -- 0: never.
                    last_used_at BIGINT NOT NULL
                )
                """,
                "CREATE INDEX app_passwords_by_account ON app_passwords (account_id, hash)",
                """
                CREATE TABLE sign_in_codes (
                    account_id TEXT NOT NULL,
                    -- 0: a device of the account, 1: the operator.
                    maker BIGINT NOT NULL,
                    hash BLOB NOT NULL,
                    expires_at BIGINT NOT NULL,
                    PRIMARY KEY (account_id, maker)
                )
                """,
            ])
    ]
}
