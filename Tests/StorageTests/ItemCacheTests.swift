import NephosCore
import Testing

@testable import NephosStorage

@Suite struct ItemCacheTests {
    private let cache = ItemCache()

    private func item(_ name: ItemName, _ bodyBytes: Int) -> FeedItem {
        FeedItem(name: name, deleted: false, digest: .empty, size: 1, body: [UInt8](repeating: 0, count: bodyBytes))
    }

    @Test func whatIsLargeOrHasALongNameIsNotKept() {
        let long = ItemName(String(repeating: "x", count: 1025))
        cache.store(nil, 1, long)
        cache.store(item(long, 1), 1, long)
        #expect(cache.count == 0 && cache.entry(1, long) == nil)
        let short = ItemName(String(repeating: "x", count: 1024))
        cache.store(nil, 1, short)
        #expect(cache.count == 1 && cache.entry(1, short) != nil)
        cache.store(item(short, 1025), 1, short)
        #expect(cache.count == 0 && cache.entry(1, short) == nil)
    }

    @Test func soManyAreKept() {
        for number in 0..<40_000 { cache.store(nil, 1, ItemName("absent \(number)")) }
        #expect(cache.count > 8000 && cache.count <= 2 * 8192)
    }
}
