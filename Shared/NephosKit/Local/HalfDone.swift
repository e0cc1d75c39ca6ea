import Foundation

/// Thrown where a file is about to be written, by a test: the disk took half of it, and the process ended there.
package struct HalfDone: Error {
    package init() {}

    /// Asks whether a file is to be written, and leaves what a crash would leave if it is not: half of it, under a name
    /// that nothing reads.
    ///
    /// - Throws: What the closure throws.
    static func leave(of data: Data, at path: String, _ fault: () throws -> Void) throws {
        do { try fault() } catch let error as HalfDone {
            try data.prefix(data.count / 2).write(to: URL(fileURLWithPath: "\(path).\(UUID().uuidString).tmp"))
            throw error
        }
    }
}
