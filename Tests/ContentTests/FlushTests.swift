import Foundation
import NephosCore
import Testing

@testable import NephosContent

#if canImport(Musl)
    import Musl
#else
    import Glibc
#endif

/// What the kernel holds of a file, in pages (`cachestat`, from Linux 6.5 on).
private enum PageCache {
    private struct Range {
        var offset: UInt64 = 0
        /// 0: to the end.
        var length: UInt64 = 0
    }

    struct Pages {
        var cached: UInt64 = 0
        /// Not on disk, and not on their way to it.
        var dirty: UInt64 = 0
        var onTheirWay: UInt64 = 0
        private var evicted: UInt64 = 0
        private var recentlyEvicted: UInt64 = 0
    }

    private typealias Call =
        @convention(c) (Int, Int32, UnsafeMutableRawPointer, UnsafeMutableRawPointer, UInt32) -> Int

    /// Nil: the system does not say.
    static func pages(of path: String) -> Pages? {
        guard let symbol = dlsym(nil, "syscall") else { return nil }
        let call = unsafeBitCast(symbol, to: Call.self)
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var (range, pages) = (Range(), Pages())
        return call(451, descriptor, &range, &pages, 0) == 0 ? pages : nil
    }

    /// Whether what is written and not flushed shows: not on a disk that is memory.
    static let isKnown: Bool = {
        guard let folder = try? TemporaryFolder() else { return false }
        let path = folder.path + "/written"
        // Not by Foundation, which may flush it.
        let descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        let bytes = [UInt8](repeating: 1, count: 100_000)
        guard pwrite(descriptor, bytes, bytes.count, 0) == bytes.count else { return false }
        return (pages(of: path)?.dirty ?? 0) > 0
    }()
}

/// What was put survives a loss of power: nothing of it is in memory alone.
@Suite struct FlushTests {
    @Test(.enabled(if: PageCache.isKnown, "The kernel does not say what it has written."))
    func whatWasPutIsOnTheDiskWhenPutReturns() throws {
        let folder = try TemporaryFolder()
        let store = try store(folder)
        // The first begins a segment, and the second is appended to it.
        for numbers in [0..<2, 2..<4] {
            let chunks = try store.put(numbers, count: 200_000)
            let segment = try #require(chunks.first).place.segment
            let pages = try #require(PageCache.pages(of: folder.file(segment)))
            #expect(pages.cached > 90)
            #expect(pages.dirty == 0 && pages.onTheirWay == 0)
        }
    }
}
