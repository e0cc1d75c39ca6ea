internal import NephosContent
internal import NephosCore
internal import NephosWire

/// What decides who may read a record of a public database, beside the roles: its type and its creator. A record made
/// anew under the name of another may have others.
struct RecordReaders: Hashable {
    /// 32 hexadecimal digits: of no account anything can be read from them.
    let rawValue: String

    private static let digitCount = 32

    init(_ record: WireRecord) {
        let said = Array(record.type.utf8) + [0] + Array(record.created.accountID.utf8)
        rawValue = String(said.withUnsafeBytes { ChunkID(hashing: $0) }.hex.prefix(Self.digitCount))
    }

    init?(_ digits: String) {
        guard digits.utf8.count == Self.digitCount else { return nil }
        rawValue = digits
    }
}

/// The assets of a record of a public database that a ticket was given for: those that it has when it is asked, for as
/// long as it is the record that the caller may read.
struct ReadableAssets: Hashable {
    let zone: ScopeName
    let record: ItemName
    let readers: RecordReaders

    init(zone: ScopeName, record: ItemName, readers: RecordReaders) {
        (self.zone, self.record, self.readers) = (zone, record, readers)
    }

    /// As the ticket has it: the zone's path, the record's name, which has slashes perhaps, and the readers.
    var name: String { "\(zone.path)/\(record)/\(readers.rawValue)" }

    /// Nil: none has such a name.
    init?(_ name: String, of owner: Owner) {
        let parts = name.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let slash = parts[2].lastIndex(of: "/"),
            let readers = RecordReaders(String(parts[2][parts[2].index(after: slash)...]))
        else { return nil }
        self.init(
            zone: ScopeName(owner, ItemName("\(parts[0])/\(parts[1])")), record: ItemName(String(parts[2][..<slash])),
            readers: readers)
    }
}
