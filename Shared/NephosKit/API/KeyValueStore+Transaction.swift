public import NephosCore

extension KeyValueStore {
    /// The value; nil: there is none, none has been downloaded yet, or it could not be read, as
    /// ``KeyValueReading/object(forKey:)``.
    ///
    /// There is no setter. Swift's setters cannot throw, so a write that fails (the store or the disk is full) would be
    /// lost without an error; use `try store.set(...)`, or a transaction, which does throw.
    public subscript(key: String) -> PropertyValue? { object(forKey: key) }

    /// Reads and writes several keys, all or nothing: no device ever sees a part of the writes, and no other writer on
    /// this device comes in between.
    ///
    ///     try store.transaction { t in
    ///         let n = t.integer(forKey: "n") ?? 0
    ///         try t.set(n + 1, forKey: "n")
    ///         t.removeValue(forKey: "old")
    ///     }
    ///
    /// The body runs once, at once, and sees its own writes. If it throws, nothing is stored, and its error is
    /// rethrown. Keep it short: meanwhile every other writer of this home waits, for ten seconds at most. Other devices
    /// do not wait: if they write the same key at the same time, the newer write wins, so a counter that several
    /// devices raise at once loses counts. Before the first download a key reads as nil
    /// (``SyncedStore/ready(timeout:)`` waits for it).
    ///
    /// - Parameter body: Writes only through its argument. It may read the store itself, which is as it was before, but
    ///   not write it.
    /// - Returns: The body's result.
    /// - Throws: The body's error, or ``CloudError`` as ``set(_:forKey:)-(PropertyValue?,_)`` does, at the end;
    ///   `.constraintViolation` when the body writes to the store other than through its argument.
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
/// It cannot be copied, and ends with its body.
public struct KeyValueTransaction: KeyValueWriting, ~Copyable {
    private let open: OpenTransaction

    init(_ open: OpenTransaction) { self.open = open }

    /// The state of a key if the transaction ended here.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`. The transaction fails too, even if the body catches this error.
    public func read(_ key: String) throws(CloudError) -> ReadResult { try open.read(key) }

    /// The value; nil: the key is missing, or is not downloaded yet.
    ///
    /// If it cannot be read, the transaction fails at its end, so that nothing based on this nil is stored.
    public func object(forKey key: String) -> PropertyValue? { (try? open.read(key))?.value }

    /// All keys and values, as they would be if the transaction ended here.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`. The transaction fails too.
    public func dictionary() throws(CloudError) -> [String: PropertyValue] { try open.dictionary() }

    /// The value of a key; nil deletes it.
    ///
    /// The transaction throws an invalid write's error at its end.
    public subscript(key: String) -> PropertyValue? {
        get { object(forKey: key) }
        nonmutating set { open.write(newValue, key) }
    }

    /// Stores a value; nil deletes the key. The last write of a key counts.
    ///
    /// The transaction throws an invalid write's error at its end.
    public func set(_ value: PropertyValue?, forKey key: String) { open.write(value, key) }

    /// Deletes a key.
    public func removeValue(forKey key: String) { open.write(nil, key) }

    /// Deletes a key, by the name that Apple's store has for it.
    public func removeObject(forKey key: String) { open.write(nil, key) }
}
