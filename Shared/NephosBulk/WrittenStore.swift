internal import NephosContent
public import NephosCore
public import NephosServiceKit
internal import NephosStorage

/// What accounts have written of late, in rows: a restart forgives nothing.
enum WrittenStore {
    static let migration = Migration(
        name: "bulk-002-written",
        statements: [
            """
            CREATE TABLE content_written (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                byte_count BIGINT NOT NULL,
                -- When so many counted: milliseconds since 1970.
                noted_at BIGINT NOT NULL,
                PRIMARY KEY (partition_number, owner)) WITHOUT ROWID
            """,
            "CREATE INDEX content_written_by_owner ON content_written (owner)",
        ])

    private static let select = SQL(
        "SELECT byte_count, noted_at FROM content_written WHERE partition_number = ?1 AND owner = ?2")
    private static let upsert = SQL(
        """
        INSERT INTO content_written (partition_number, owner, byte_count, noted_at) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, owner) DO UPDATE SET
            byte_count = excluded.byte_count, noted_at = excluded.noted_at
        """)
    private static let delete = SQL(
        "DELETE FROM content_written WHERE owner = ?1 OR (owner > ?1 || '/' AND owner < ?1 || '0')")

    /// What counts now.
    ///
    /// - Parameter isAhead: Becomes true when it was noted at a time that is still to come: the clock was set back.
    ///   Until it is noted anew it does not become less.
    static func find(
        at place: HoldStore.Place, bytesMax: UInt64, isPublic: Bool, now: Timestamp, in transaction: any Transaction
    ) throws -> (writing: Writing, isAhead: Bool) {
        let noted = try transaction.first(select, place.values) {
            (bytes: UInt64(clamping: $0.integer(0)), at: Timestamp(milliseconds: UInt64(clamping: $0.integer(1))))
        }
        guard let noted else { return (Writing(bytes: 0, bytesMax: bytesMax, isPublic: isPublic), false) }
        let writing = Writing(bytes: noted.bytes, bytesMax: bytesMax, isPublic: isPublic)
        return (writing.after(now.since(noted.at)), noted.at > now)
    }

    static func save(
        _ writing: Writing, at place: HoldStore.Place, now: Timestamp, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            upsert,
            place.values + [.integer(Int64(clamping: writing.bytes)), .integer(Int64(clamping: now.milliseconds))])
    }

    /// The row of what an account writes to one owner's databases: its own, or all public ones of an app, however many
    /// containers and partitions those have.
    static func place(of account: AccountID, to owner: Owner, in partition: Int) -> HoldStore.Place {
        let own = Owner(account)
        guard owner.isApp else { return HoldStore.Place(owner: own, partition: partition) }
        return HoldStore.Place(
            owner: Owner("\(account.rawValue)/\(owner.rawValue)"), partition: own.partition ?? partition)
    }

    /// Removes what the account has written, to its own databases and to public ones.
    static func remove(of owner: Owner, in transaction: any Transaction) throws {
        try transaction.execute(delete, [.text(owner.rawValue)])
    }
}

extension Transfers {
    /// What the account has written of late, and so much more now.
    ///
    /// - Parameters:
    ///   - owner: To whose database: its own, or an app's.
    ///   - partition: Of the account's own database.
    func writing(
        of account: AccountID, to owner: Owner, in partition: Int, adding bytes: UInt64 = 0, at now: Timestamp,
        _ host: any ServiceRuntime,
        in transaction: any HandlerTransaction
    ) throws -> Writing {
        let place = WrittenStore.place(of: account, to: owner, in: partition)
        let plan = try host.storage.plan(of: owner, in: transaction)
        let ofOwn = Writing.bytesMax(
            ofPlan: plan ?? 0, least: configuration.writtenADayLeast, plans: configuration.writtenADayPlans)
        // While an app's plan is not known, there is no room either.
        let bytesMax = owner.isApp ? plan.map { Writing.bytesMax(ofAppPlan: $0) } ?? ofOwn : ofOwn
        let (before, isAhead) = try WrittenStore.find(
            at: place, bytesMax: bytesMax, isPublic: owner.isApp, now: now, in: transaction)
        let writing = before.adding(bytes)
        if bytes > 0 || isAhead { try WrittenStore.save(writing, at: place, now: now, in: transaction) }
        return writing
    }

    /// Carries out what adds to the app's plan, if the account has not added its part of it within the last day: no
    /// account fills an app's plan for all. What is added to an account's own plan is carried out as it is.
    ///
    /// - Parameter bytes: That count on the app's plan, besides chunks, which are counted as they are stored.
    /// - Throws: ``CloudError`` `.requestRateLimited`, before anything is carried out; what `body` throws.
    public func adding<Result>(
        _ bytes: UInt64, by account: AccountID, to owner: Owner, in partition: Int, at now: Timestamp,
        _ transaction: any HandlerTransaction, _ body: () throws -> Result
    ) throws -> Result {
        guard let host, bytes > 0, owner.isApp else { return try body() }
        let before = try writing(of: account, to: owner, in: partition, at: now, host, in: transaction)
        // Room that is reserved for uploads counts on the account's part of the plan, as saved bytes do.
        let reserved = try host.storage.unfilledBytes(of: account, for: owner, in: transaction)
        if let refusal = before.adding(reserved).refusal(of: bytes) { throw refusal }
        let result = try body()
        _ = try writing(of: account, to: owner, in: partition, adding: bytes, at: now, host, in: transaction)
        return result
    }
}
