public import NephosCore

extension KeyValueStore {
    /// The value; nil: there is none, none has been downloaded yet, or it could not be read, as
    /// ``KeyValueReading/object(forKey:)``.
    ///
    /// There is no setter. Swift's setters cannot throw, so a write that is refused (a store that is full, a disk that
    /// is) would be lost without a word; use `try store.set(...)`, or a transaction, which does throw.
    public subscript(key: String) -> PropertyValue? { object(forKey: key) }

    /// Reads and writes several keys, all or nothing: no device ever sees some of the writes without the others, and
    /// nobody on this device writes in between.
    ///
    ///     try store.transaction { t in
    ///         let n = t.integer(forKey: "n") ?? 0
    ///         try t.set(n + 1, forKey: "n")
    ///         t.removeValue(forKey: "old")
    ///     }
    ///
    /// The body runs once, at once, and sees its own writes. What it throws leaves nothing, and is thrown on. Keep it
    /// short: meanwhile every other writer of this home waits, for ten seconds at most. Other devices do not: of what
    /// they write at the same time the newer write of each key wins, so a counter that several devices raise at once
    /// loses counts. Before the first download a key reads as nil (``ready(timeout:)`` waits for it).
    ///
    /// - Parameter body: Uses only what it is given. The store itself can be read in it, as it was before, and not
    ///   written.
    /// - Returns: What the body returns.
    /// - Throws: What the body throws, or ``CloudError`` as ``set(_:forKey:)-(PropertyValue?,_)`` does, at the end;
    ///   `.constraintViolation` when the body writes to the store by another way than what it is given.
    @discardableResult
    public func transaction<Result>(_ body: (inout KeyValueTransaction) throws -> Result) throws -> Result {
        let (app, engine) = (app, session.engine)
        let result = try session.local.transact(
            app: app, stamp: { engine.stamp },
            refused: { writes, error in engine.execute { $0.keyValue(app).refusedHere(writes, error) } }
        ) { open in
            var transaction = KeyValueTransaction(open)
            return try body(&transaction)
        }
        engine.execute { $0.keyValue(app).pump() }
        return result
    }
}

/// A store as a transaction sees it, with its own writes.
///
/// It cannot be copied, and ends with the body that it was given to.
public struct KeyValueTransaction: KeyValueWriting, ~Copyable {
    private let open: OpenTransaction

    init(_ open: OpenTransaction) { self.open = open }

    /// What the key holds, as it would be if the transaction ended here.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`. The transaction fails too, whatever becomes of this error.
    public func read(_ key: String) throws(CloudError) -> ReadResult { try open.read(key) }

    /// The value; nil: there is none, or none has been downloaded yet.
    ///
    /// If it cannot be read, the transaction fails at its end, so that nothing is stored that was made of this nil.
    public func object(forKey key: String) -> PropertyValue? { (try? open.read(key))?.value }

    /// All keys and values, as they would be if the transaction ended here.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`. The transaction fails too.
    public func dictionary() throws(CloudError) -> [String: PropertyValue] { try open.dictionary() }

    /// The value of a key; nil deletes it.
    ///
    /// What is wrong with a write is thrown at the transaction's end.
    public subscript(key: String) -> PropertyValue? {
        get { object(forKey: key) }
        nonmutating set { open.write(newValue, key) }
    }

    /// Stores a value; nil deletes the key. The last write of a key counts.
    ///
    /// What is wrong with it is thrown at the transaction's end.
    public func set(_ value: PropertyValue?, forKey key: String) { open.write(value, key) }

    /// Deletes a key.
    public func removeValue(forKey key: String) { open.write(nil, key) }

    /// Deletes a key, by the name that Apple's store has for it.
    public func removeObject(forKey key: String) { open.write(nil, key) }
}
