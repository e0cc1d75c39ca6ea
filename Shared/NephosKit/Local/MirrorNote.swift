import Crypto
import Foundation
import GRDB
import NephosCore
import NephosWire

/// What a mirror last wrote to a file of defaults, by which it knows what somebody has edited since.
///
/// Noted before the file is replaced and again afterwards, so that a crash between leaves it known that the file has
/// either the one or the other.
struct MirrorNote: Codable, Hashable {
    /// The account whose store it was; "": nobody's. Of another one's file nothing is known.
    var account: String
    /// The keys that were mirrored; nil: every one.
    var covers: [ItemName]?
    /// What the file had when both sides agreed last.
    var last: Content
    /// What was about to be written in its place; nil: nothing.
    var next: Content?

    /// The values of a file, each by its digest.
    struct Content: Codable, Hashable {
        private static let byteCount = 16
        private var digests: [ItemName: Data]

        init(_ values: [ItemName: PropertyValue]) { digests = values.mapValues(Self.digest) }

        var keys: Set<ItemName> { Set(digests.keys) }

        func has(_ value: PropertyValue?, at key: ItemName) -> Bool { digests[key] == value.map(Self.digest) }

        private static func digest(_ value: PropertyValue) -> Data {
            Data(SHA256.hash(data: value.canonicalBytes).prefix(byteCount))
        }

        // As pairs: Swift's own strings would take two names that look alike for one.
        private struct Entry: Codable {
            var key: ItemName
            var digest: Data
        }

        init(from decoder: any Decoder) throws {
            let entries = try [Entry](from: decoder)
            digests = Dictionary(entries.map { ($0.key, $0.digest) }) { $1 }
        }

        func encode(to encoder: any Encoder) throws {
            try digests.sorted { $0.key < $1.key }.map { Entry(key: $0.key, digest: $0.value) }.encode(to: encoder)
        }
    }

    /// The keys that the file may have had.
    var keys: Set<ItemName> { last.keys.union(next?.keys ?? []) }

    /// Whether it is known what the file had of the key.
    func knows(_ key: ItemName) -> Bool { covers?.contains(key) ?? true }

    /// Whether the mirror itself has left it so: nobody has edited it since.
    func wrote(_ value: PropertyValue?, at key: ItemName) -> Bool {
        last.has(value, at: key) || next?.has(value, at: key) == true
    }
}

/// The notes of a home's mirrors, one for each file and app.
struct MirrorNotes {
    /// More files than anybody mirrors; of those beyond, the longest unused is forgotten.
    static let filesMax = 16
    private static let list = "mirrors"

    private let facts: Facts
    private let name: String

    /// - Parameter path: Where the file really is, and which form it has.
    init(_ database: Database, app: AppID, path: String) {
        facts = Facts(database)
        name = "mirror \(app.rawValue) \(path)"
    }

    /// What is known of the file for who is signed in now.
    func read() throws -> MirrorNote? {
        guard let note = try facts.value(name, as: MirrorNote.self), try note.account == account() else { return nil }
        return note
    }

    func write(covers: [ItemName]?, last: MirrorNote.Content, next: MirrorNote.Content?) throws {
        try facts.set(name, MirrorNote(account: account(), covers: covers, last: last, next: next))
        var names = try facts.value(Self.list, as: [String].self) ?? []
        guard names.last != name else { return }
        names.removeAll { $0.hasSameBytes(as: name) }
        names.append(name)
        while names.count > Self.filesMax { try facts.set(names.removeFirst(), nil as String?) }
        try facts.set(Self.list, names)
    }

    private func account() throws -> String {
        guard let session = try facts.session, session.signedIn else { return "" }
        return session.accountID.rawValue
    }
}
