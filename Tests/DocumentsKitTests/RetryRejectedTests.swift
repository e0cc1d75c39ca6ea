import Foundation
import NephosBus
import NephosCore
import Testing

@testable import NephosKit

/// Rejected changes that are sent again.
@Suite(.timeLimit(.minutes(5))) struct RetryRejectedTests {
    /// A short content travels in its request, a long one in chunks.
    @Test("A rejected content is sent again from the version it was made from", arguments: [2_000, 300_000])
    func retriedContentIsNoConflict(_ length: Int) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let two = try await cloud.open()
            try await one.container.put(Data("before".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            try cloud.setPlan(bytes: 1_000)
            let bytes = SplitMix64.bytes(length, seed: 1)
            try await one.container.put(bytes, at: "x")
            try await one.settle()
            for _ in 0..<2 {
                let rejected = try await one.container.conflicts.rejected()
                #expect(rejected.map(\.key) == ["/Documents/x"] && rejected.first?.error.code == .quotaExceeded)
                let file = try #require(rejected.first?.keptFile)
                #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == bytes)
                #expect(one.contentFiles.count == 1)
                // There is no room yet, and each attempt leaves one entry and one file.
                #expect(try await one.container.conflicts.retryRejected(["/Documents/x"]) == ["/Documents/x"])
                try await one.settle()
            }
            try cloud.setPlan(bytes: 10_000_000)
            #expect(try await one.container.conflicts.retryRejected(["/Documents/other"]) == [])
            #expect(try await one.container.conflicts.retryRejected() == ["/Documents/x"])
            try await one.settle()
            try await two.settle()
            #expect(try await one.container.conflicts.rejected().isEmpty)
            #expect(try await one.container.conflicts.list().isEmpty)
            #expect(try await two.container.read("x") == bytes)
            #expect(one.contentFiles.isEmpty)
        }
    }

    @Test("A retried change is a conflict where another device has written since")
    func retriedContentMeetsNewerOne() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let two = try await cloud.open()
            try await one.container.put(Data("before".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            try cloud.setPlan(bytes: 1_000)
            let bytes = SplitMix64.bytes(2_000, seed: 1)
            try await one.container.put(bytes, at: "x")
            try await one.settle()
            try await two.container.put(Data("theirs".utf8), at: "x")
            try await two.settle()
            try cloud.setPlan(bytes: 10_000_000)
            try await one.container.conflicts.retryRejected()
            try await one.settle()
            #expect(try await one.container.conflicts.versions(of: "x").count == 2)
        }
    }
}
