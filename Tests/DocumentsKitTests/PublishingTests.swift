import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A link is of what the server has, and is told once.
@Suite struct PublishingTests {
    @Test func whatWaitsIsSentBeforeItIsPublished() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try await one.container.put(bytes, at: "a b/é.txt", makesFolders: true)
            let item = try #require(try await one.container.item(at: "a b/é.txt"))
            let link = try await one.container.links.publish("a b/é.txt", expiresAfter: .seconds(3600))
            let url = try #require(link.url?.absoluteString)
            #expect(url.hasPrefix("http://cloud.test/p/") && url.hasSuffix("/%C3%A9.txt"), "\(url)")
            #expect(url.count == "http://cloud.test/p//%C3%A9.txt".count + 27)
            #expect(link.version == item.version && link.item == item.id && link.size == 300_000)
            #expect(link.expires.since(link.created) == .seconds(3600))
            let listed = try await one.container.links.list()
            #expect(listed.map(\.id) == [link.id] && listed[0].url == nil && listed[0].name == "é.txt")
            #expect(try await one.container.links.publish(item.id).url != link.url)
            #expect(try await one.container.links.unpublish(link.id))
            #expect(try await !one.container.links.unpublish(link.id))
            #expect(try await one.container.links.list().count == 1)
        }
    }

    @Test func withoutAConnectionNothingIsPublishedAndTheErrorSaysWhy() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(Data("text".utf8), at: "a.txt")
            await #expect(throws: CloudError.self) {
                try await one.container.links.publish("a.txt", timeout: .seconds(2))
            }
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.links.list().isEmpty)
            #expect(try await one.container.links.publish("a.txt").size == 4)
        }
    }

    /// Nor does anybody wait for it without an end.
    @Test func aFileThatIsHeldStillIsPublishedOnceItIsResumed() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "a.txt")
            try await one.settle()
            try await one.container.pauses.pause("a.txt")
            try await one.container.put(Data("22".utf8), at: "a.txt")
            #expect(await Self.failure(one.container, "a.txt") == .constraintViolation)
            #expect(try await one.container.links.list().isEmpty)
            try await one.container.pauses.resume("a.txt", with: .preserveLocalChanges)
            #expect(try await one.container.links.publish("a.txt").size == 2)
        }
    }

    private static func failure(
        _ container: UbiquityContainer, _ path: String, _ lifetime: Duration? = nil
    ) async -> CloudError.Code? {
        do {
            _ = try await container.links.publish(path, expiresAfter: lifetime)
            return nil
        } catch { return error.code }
    }

    /// What keeps it here is none of what is waited for: the bytes wait for another file that is held still.
    @Test func whoeverIsCancelledWaitsNoLonger() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let bytes = SplitMix64.bytes(300_000, seed: 1)
            try await one.container.put(Data("1".utf8), at: "a")
            try await one.settle()
            try await one.container.pauses.pause("a")
            try await one.container.put(bytes, at: "a")
            try await one.container.put(bytes, at: "b")
            let task = Task { try await one.container.links.publish("b", timeout: .seconds(300)) }
            try await Task.sleep(for: .milliseconds(300))
            let start = ContinuousClock.now
            task.cancel()
            let error = await #expect(throws: CloudError.self) { try await task.value }
            #expect(error?.code == .operationCancelled)
            #expect(start.duration(to: .now) < .seconds(200))
            // One that is not ends when nothing moves.
            let late = await #expect(throws: CloudError.self) {
                try await one.container.links.publish("b", timeout: .seconds(1))
            }
            #expect(late?.code == .deadlineExceeded)
        }
    }

    @Test func onlyAFileIsPublishedForASecondOrLonger() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("text".utf8), at: "a.txt")
            #expect(await Self.failure(one.container, "/Documents") == .invalidArguments)
            #expect(await Self.failure(one.container, "no") == .unknownItem)
            for time in [Duration.zero, .seconds(-5), .milliseconds(999)] {
                #expect(await Self.failure(one.container, "a.txt", time) == .invalidArguments)
            }
            #expect(await Self.failure(one.container, "a.txt", .seconds(31 * 86_400)) == .limitExceeded)
        }
    }

    /// What is put meanwhile is nothing that somebody wanted to publish.
    @Test func theContentIsPublishedThatWasThereWhenItWasAskedFor() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.session.setTransferLimits(TransferLimits(upload: 100_000))
            let wanted = SplitMix64.bytes(600_000, seed: 1)
            try await one.container.put(wanted, at: "a")
            let version = try await one.container.item(at: "a")?.version
            async let published = one.container.links.publish("a")
            try await Task.sleep(for: .milliseconds(50))
            try await one.container.put(SplitMix64.bytes(300_000, seed: 2), at: "a")
            let link = try await published
            #expect(link.version == version && link.size == 600_000)
            #expect(try await one.container.item(at: "a")?.version != version)
        }
    }
}
