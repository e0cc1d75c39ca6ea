import Foundation
import NephosCore

/// Where a chunk is in a home, by itself or within what is longer.
struct KeptPlace: Hashable, Sendable {
    /// What the content's file is called.
    var file: DocumentID
    var chunk: CutChunk
    var offset: Int
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
