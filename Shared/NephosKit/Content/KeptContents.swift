import Foundation
import GRDB
import NephosCore

/// Where a chunk is in a home, by itself or within what is longer.
struct KeptPlace: Hashable, Sendable {
    /// What the content's file is called.
    var file: DocumentID
    var chunk: CutChunk
    var offset: Int
}

/// Contents that a home has whole, of whichever service and container: those that wait to be sent or were refused, and
/// those that the server has too.
enum KeptContents {
    /// Tables, their columns that name files, and which of their rows have one. A home has some of the tables.
    private static let tables = [
        ("document_copies", "file", ""), ("document_contents", "version", " AND source IS NULL"),
        ("record_assets", "file", ""),
    ]

    /// Finds where chunks are. That they are there as they were is found out by reading them.
    ///
    /// - Parameters:
    ///   - account: Whose.
    ///   - chunksMax: How many of them are looked for at most, whichever are found first.
    ///   - placesMax: How many places of one: what is damaged in one file may be whole in another.
    static func places(
        of chunks: Set<ChunkID>, account: String, chunksMax: Int, placesMax: Int, _ database: Database
    ) throws -> [ChunkID: [KeptPlace]] {
        var found: [ChunkID: [KeptPlace]] = [:]
        for (table, column, condition) in tables where try database.tableExists(table) {
            let rows = try Row.fetchCursor(
                database, sql: "SELECT \(column), chunks FROM \(table) WHERE account = ?\(condition)",
                arguments: [account])
            while let row = try rows.next() {
                guard let file = DocumentID(bytes: row[0] as Data) else { continue }
                var offset = 0
                for chunk in CutChunk.decode(row[1]) {
                    defer { offset += chunk.length }
                    guard chunks.contains(chunk.id) else { continue }
                    let count = found[chunk.id]?.count ?? 0
                    guard count > 0 || found.count < chunksMax, count < placesMax else { continue }
                    found[chunk.id, default: []].append(KeptPlace(file: file, chunk: chunk, offset: offset))
                }
            }
        }
        return found
    }
}

extension ContentFolder {
    /// What became of reading a chunk by itself.
    enum ChunkReading: Sendable {
        case whole(Data)
        /// It is gone, or not what it was.
        case damaged
        /// The file cannot be opened, whatever is in it.
        case closed
        /// Nothing can be read in this moment: too many files are open, there is no memory, or the folder is not there.
        case unreadable
    }

    /// Reads a chunk, and compares it with its hash.
    func read(_ place: KeptPlace) -> ChunkReading {
        let descriptor = open(file(place.file), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            switch errno {
            // With the folder, what is in it may be elsewhere for now.
            case ENOENT: return isThere ? .damaged : .unreadable
            case EMFILE, ENFILE, ENOMEM: return .unreadable
            default: return .closed
            }
        }
        defer { close(descriptor) }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, place.chunk.length), alignment: 16)
        defer { buffer.deallocate() }
        return Self.read(place.chunk, at: place.offset, of: descriptor, into: buffer).map { .whole(Data($0)) }
            ?? .damaged
    }
}
