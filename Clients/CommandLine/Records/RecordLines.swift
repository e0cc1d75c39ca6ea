import Foundation
import NephosCore
import NephosKit

/// Records as lines of JSON, from a file or standard input.
///
/// The whole is never held: it may be larger than this machine's memory.
struct RecordLines {
    /// Bytes of a line: a record has 1 MiB at most, of which each byte takes six where it is escaped.
    static let lineBytesMax = 8 << 20

    private let descriptor: Int32
    private let file: String
    private var buffer: [UInt8] = []
    /// Where in the buffer what was not taken yet begins, and up to where it has no line end.
    private var start = 0
    private var searched = 0
    private var hasEnded = false
    /// The last line's number, from 1.
    private(set) var number = 0
    /// Bytes that were taken.
    private(set) var bytes = 0
    /// Bytes of the file; nil: it has no size.
    let size: Int?

    /// - Parameter file: `-` is standard input.
    init(_ file: String) throws {
        descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        self.file = file == "-" ? "standard input" : file
        var facts = stat()
        guard descriptor >= 0 else { throw InputFile.failure(self.file) }
        let isFile = fstat(descriptor, &facts) == 0 && facts.st_mode & S_IFMT == S_IFREG
        size = isFile ? Int(facts.st_size) : nil
    }

    func close() { if descriptor != STDIN_FILENO { Foundation.close(descriptor) } }

    /// The next line that is not empty; nil: there is none.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: the line is longer than any record's.
    mutating func next() throws -> [UInt8]? {
        while true {
            if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = take(upTo: end)
                bytes += 1
                (start, searched) = (end + 1, end + 1)
                if Self.hasContent(line) { return line }
                continue
            }
            searched = buffer.count
            guard buffer.count - start <= Self.lineBytesMax else {
                throw CloudError(
                    .limitExceeded, "A line is longer than any record's.",
                    details: ["line": "\(number + 1)", "bytes_max": "\(Self.lineBytesMax)"])
            }
            if hasEnded {
                guard start < buffer.count else { return nil }
                let line = take(upTo: buffer.count)
                (start, searched) = (buffer.count, buffer.count)
                return Self.hasContent(line) ? line : nil
            }
            try fill()
        }
    }

    private mutating func take(upTo end: Int) -> [UInt8] {
        number += 1
        bytes += end - start
        return Array(buffer[start..<end])
    }

    private static func hasContent(_ line: [UInt8]) -> Bool { line.contains { $0 > 0x20 } }

    private mutating func fill() throws {
        if start > 0 {
            buffer.removeFirst(start)
            searched -= start
            start = 0
        }
        var piece = [UInt8](repeating: 0, count: 256 << 10)
        while true {
            let count = Foundation.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 || errno != EBADF else {
                throw CloudError(.invalidArguments, "Standard input is closed: there is nothing to read.")
            }
            guard count >= 0 else { throw InputFile.failure(file) }
            hasEnded = count == 0
            buffer += piece[..<count]
            return
        }
    }

    // MARK: A line

    /// - Throws: ``CloudError`` `.invalidArguments` that says which line, and why.
    static func record(_ line: some Collection<UInt8>, number: Int, zone: String) throws(CloudError) -> Record {
        do throws(CloudError) {
            // A file may begin with a mark of its encoding.
            let isMarked = number == 1 && line.starts(with: [0xef, 0xbb, 0xbf])
            guard let text = String(validating: isMarked ? Array(line.dropFirst(3)) : Array(line), as: UTF8.self)
            else { throw CloudError(.invalidArguments, "The line is not text in UTF-8.") }
            return try record(text, zone: zone)
        } catch {
            var error = error
            error.details["line"] = "\(number)"
            throw error
        }
    }

    static func record(_ line: String, zone: String) throws(CloudError) -> Record {
        try RecordJSON.record(line, zone: zone)
    }
}
