import Foundation
import NephosKit

/// A note. A record keeps it, and each member is a field of the record.
struct Note: Codable {
    var title: String
    var text: String
    var changed = Date()
}

/// The order of the list. It is a setting, so it is the same on all devices of the account.
enum NoteOrder: String {
    case title, newest
    var sort: RecordSort { self == .title ? RecordSort("title") : RecordSort("changed", ascending: false) }
}

/// The notes and settings of the account that is signed in, from this device's copy.
struct Notebook: Sendable {
    private static let orderKey = "notes.order"
    private let records: RecordDatabase
    private let settings: KeyValueStore

    /// Waits for the first download. From then on no call needs a network.
    init(_ session: Session) async throws(CloudError) {
        records = try await session.recordContainer().privateDatabase
        settings = try session.keyValueStore()
        try await records.ready()
        try await settings.ready()
    }

    var order: NoteOrder { settings.string(forKey: Self.orderKey).flatMap(NoteOrder.init) ?? .title }

    func setOrder(_ name: String) throws(CloudError) {
        guard let order = NoteOrder(rawValue: name) else {
            throw CloudError(.invalidArguments, "An order is `title` or `newest`.")
        }
        try settings.set(order.rawValue, forKey: Self.orderKey)
    }

    func list() async throws(CloudError) -> [Note] {
        let notes = try await records.records(matching: RecordQuery(type: "Note", sort: [order.sort]))
        return try notes.map { record throws(CloudError) in try record.decode() }
    }

    func add(_ note: Note) async throws(CloudError) { try await records.save(Record(type: "Note", encoding: note)) }

    func edit(_ note: Note) async throws(CloudError) {
        let notes = try await records.records(matching: RecordQuery(type: "Note"))
        guard var record = notes.first(where: { $0["title"] == note.title }) else {
            throw CloudError(.unknownItem, "No note has this title. List the titles with `notes list`.")
        }
        try record.encode(note)
        try await records.save(record)
    }

    /// Sends pending changes and fetches new ones. Without a network the changes stay pending on this device.
    func sync() async throws(CloudError) {
        try await records.waitUntilSent(isImpatient: true)
        try await settings.waitUntilSent(isImpatient: true)
        try await records.waitUntilCurrent(isImpatient: true)
        try await settings.waitUntilCurrent(isImpatient: true)
    }

    /// A value for each change that another device makes to a note or a setting, from now on.
    var changes: AsyncStream<Void> {
        let (notes, orders) = (records.changes, settings.changes)
        return AsyncStream { continuation in
            let noteTask = Task { for await _ in notes { continuation.yield() } }
            let orderTask = Task { for await _ in orders { continuation.yield() } }
            continuation.onTermination = { _ in [noteTask, orderTask].forEach { $0.cancel() } }
        }
    }
}
