import Foundation
import NephosFiles
import Testing

@Suite struct FileLockTests {
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
        var first: FileLock? = try FileLock(path)
        let copy = dup(try descriptor(of: path))
        defer { close(copy) }
        #expect(throws: FileLock.Failure.self) { try FileLock(path) }
        withExtendedLifetime(first) {}
        first = nil
        _ = try FileLock(path)
    }

    @Test func aLinkIsNotFollowed() throws {
        let path = NSTemporaryDirectory() + "/nephos-lock-" + UUID().uuidString
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: path + "-elsewhere")
        defer { unlink(path) }
        #expect(throws: FileLock.Failure.self) { try FileLock(path) }
        #expect(!FileManager.default.fileExists(atPath: path + "-elsewhere"))
    }
}
