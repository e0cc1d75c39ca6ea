import Foundation
import GRDB
import NephosCore

/// What an app's transaction has read and written so far.
///
/// It lives on one thread, inside one transaction of the device's database.
final class OpenTransaction {
    private let store: StoreTransaction
    /// By Swift's own strings, as an app means its keys; nil deletes.
    private(set) var changes: [String: PropertyValue?] = [:]
    /// Why something could not be read. What was decided by it must not be stored.
    private(set) var failure: (any Error)?

    init(_ store: StoreTransaction) { self.store = store }

    /// What the key would hold if the transaction ended here.
    func read(_ text: String) throws(CloudError) -> ReadResult {
        if let change = changes[text] { return change.map { .value($0) } ?? .absent }
        return try noting { try store.result(ofText: text) }
    }

    /// What the whole store would hold.
    func dictionary() throws(CloudError) -> [String: PropertyValue] {
        try noting { try store.texts() }.merging(changes.compactMapValues { $0 }) { $1 }
            .filter { key, _ in changes[key] != .some(nil) }
    }

    func write(_ value: PropertyValue?, _ text: String) { changes[text] = .some(value) }

    /// In an order that does not depend on chance.
    var writes: [LocalWrite] {
        changes.sorted { $0.key < $1.key }.map { LocalWrite(text: $0.key, value: $0.value) }
    }

    private func noting<Result>(_ body: () throws -> Result) throws(CloudError) -> Result {
        do { return try body() } catch {
            failure = failure ?? error
            throw CloudError(wrapping: error)
        }
    }
}

extension LocalStore {
    /// Runs the body on one consistent state, and accepts what it writes: all or nothing, alone among all processes of
    /// this home.
    ///
    /// - Parameter stamp: Asked when the body has ended.
    /// - Throws: What the body throws, and ``CloudError`` as ``accept(_:app:id:writer:now:)`` does: nothing is stored.
    func transact<Result>(
        app: AppID, stamp: () -> (id: OperationID, now: Timestamp, writer: Int64),
        refused: ([LocalWrite], CloudError) -> Void, _ body: (OpenTransaction) throws -> Result
    ) throws -> Result {
        // What the app throws stays as it is; what the database throws is made readable.
        var thrown: (any Error)?
        do throws(CloudError) {
            return try write { database in
                let transaction = OpenTransaction(try store(of: app, database))
                let result: Result
                do { result = try insideTransaction { try body(transaction) } } catch {
                    thrown = transaction.failure == nil ? error : nil
                    throw transaction.failure ?? error
                }
                if let failure = transaction.failure { throw failure }
                let writes = transaction.writes
                do {
                    try Self.check(writes)
                    let (id, now, writer) = stamp()
                    try accept(writes, app: app, id: id, writer: writer, now: now, database)
                } catch {
                    if let error = error as? CloudError { refused(writes, error) }
                    throw error
                }
                return result
            }
        } catch {
            throw thrown ?? error
        }
    }
}
