import NephosCore
import Testing

@testable import NephosStorage

@Suite struct BloomFilterTests {
    private func id(_ generator: inout SplitMix64) throws -> OperationID {
        let words = (generator.next(), generator.next())
        return try #require(withUnsafeBytes(of: words) { OperationID(bytes: Array($0)) })
    }

    @Test func whatIsInItIsFoundAndLittleElse() throws {
        var (filter, generator) = (BloomFilter(), SplitMix64(seed: 3))
        let ids = try (0..<350_000).map { _ in try id(&generator) }
        #expect(!filter.contains(ids[0]))
        for id in ids { filter.insert(id) }
        #expect(ids.allSatisfy { filter.contains($0) })
        let wrong = try (0..<50_000).count { _ in filter.contains(try id(&generator)) }
        #expect((1..<50_000 / 120).contains(wrong))
        filter.removeAll()
        #expect(!ids.contains { filter.contains($0) })
    }
}
