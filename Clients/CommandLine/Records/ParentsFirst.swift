import Foundation
import NephosCore
import NephosKit

/// Puts lines of records in an order in which parents come before their children.
///
/// A line waits while its parent's line has not come. Names are in memory, and the lines that wait are in a file of the
/// system's temporary folder: there may be more of them than fit into memory.
struct ParentsFirst {
    private var waiting: WaitingLines
    private var round: WaitingLines?
    /// Records with a line that waited when the round began; nil: the input has not ended, and any line may come.
    private var expected: Set<RecordID>?
    /// Records whose line has come.
    private var passed: Set<RecordID> = []
    /// Records with a line that waits: their later lines stay behind it.
    private var held: Set<RecordID> = []
    /// Whether the last round let a line pass, and whether this one has.
    private var hadProgress = true
    private var hasProgress = false

    init() throws { waiting = try WaitingLines() }

    func close() {
        waiting.close()
        round?.close()
    }

    /// Whether the record's line may pass now; else it waits, and ``next(_:)`` gives it.
    mutating func isNext(_ record: Record, _ line: [UInt8], number: Int) throws -> Bool {
        if !held.contains(record.id), isReady(record) {
            passed.insert(record.id)
            return true
        }
        held.insert(record.id)
        try waiting.append(line, number: number)
        return false
    }

    /// The next line of those that wait, once all others have passed; nil: there is none.
    ///
    /// A line whose parent has none passes too: the server has the parent, or refuses the record. So do parents in a circle.
    ///
    /// - Parameter read: Makes a record of a line.
    mutating func next(_ read: ([UInt8], Int) throws -> Record) throws -> (line: [UInt8], number: Int)? {
        while true {
            if round == nil {
                guard waiting.count > 0 else { return nil }
                try waiting.rewind()
                round = waiting
                waiting = try WaitingLines()
                (expected, held) = (held, [])
            }
            while let (line, number) = try round?.next() {
                guard hadProgress else { return (line, number) }
                guard try isNext(read(line, number), line, number: number) else { continue }
                hasProgress = true
                return (line, number)
            }
            round?.close()
            round = nil
            (hadProgress, hasProgress) = (hasProgress, false)
        }
    }

    private func isReady(_ record: Record) -> Bool {
        guard let name = record.parent else { return true }
        let parent = RecordID(name, zone: record.id.zone)
        return passed.contains(parent) || expected?.contains(parent) == false
    }
}

/// Lines in a temporary file that has no name.
private struct WaitingLines {
    private let file: UnsafeMutablePointer<FILE>
    private(set) var count = 0
    private var left = 0

    init() throws {
        guard let file = tmpfile() else { throw InputFile.failure("temporary file") }
        self.file = file
    }

    func close() { fclose(file) }

    mutating func append(_ line: [UInt8], number: Int) throws {
        count += 1
        let head = [UInt64(number), UInt64(line.count)]
        guard fwrite(head, 8, 2, file) == 2, fwrite(line, 1, line.count, file) == line.count else {
            throw InputFile.failure("temporary file")
        }
    }

    mutating func rewind() throws {
        guard fseek(file, 0, SEEK_SET) == 0 else { throw InputFile.failure("temporary file") }
        left = count
    }

    mutating func next() throws -> (line: [UInt8], number: Int)? {
        guard left > 0 else { return nil }
        left -= 1
        var head: [UInt64] = [0, 0]
        guard fread(&head, 8, 2, file) == 2, let length = Int(exactly: head[1]), let number = Int(exactly: head[0])
        else { throw InputFile.failure("temporary file") }
        var line = [UInt8](repeating: 0, count: length)
        guard fread(&line, 1, length, file) == length else { throw InputFile.failure("temporary file") }
        return (line, number)
    }
}
