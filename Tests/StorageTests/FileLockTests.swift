import Foundation
import NephosCore
import NephosStorage
import Testing

@Suite struct FileLockTests {
    private static let held = CloudError(.storageFailure, "Held.")

    private func lock(_ path: String) throws -> FileLock {
        try FileLock(path, unusable: { _ in CloudError(.internalError, "Unusable.") }, held: Self.held)
    }

    /// The descriptor that this process has of a file.
    private func descriptor(of path: String) throws -> Int32 {
        let names = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        return try #require(
            names.compactMap { Int32($0) }.first {
                (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")) == path
            })
    }

    // Between its fork and its beginning a program has all descriptors of the one that starts it.
    @Test func whatIsGivenBackIsFreeThoughAProgramIsBeingStarted() throws {
        let path =
            URL(fileURLWithPath: NSTemporaryDirectory()).resolvingSymlinksInPath().path
            + "/nephos-lock-" + UUID().uuidString
        defer { unlink(path) }
        var first: FileLock? = try lock(path)
        let copy = dup(try descriptor(of: path))
        defer { close(copy) }
        #expect(throws: Self.held) { try lock(path) }
        withExtendedLifetime(first) {}
        first = nil
        _ = try lock(path)
    }
}
