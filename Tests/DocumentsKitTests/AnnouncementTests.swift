import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// Others see that a long content is on its way, and read what there is until it has come.
@Suite struct AnnouncementTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        SplitMix64.bytes(count, seed: seed)
    }

    @Test func whatTakesAWhileIsSeenOnItsWay() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("old".utf8), at: "film")
            try await one.container.put(Data("old".utf8), at: "note")
            try await one.settle()
            try await two.settle()
            // So slow that it takes a minute.
            one.session.setTransferLimits(TransferLimits(upload: 50_000))
            let film = bytes(3_000_000, seed: 1)
            try await one.container.put(film, at: "film")
            try await one.container.put(bytes(500_000, seed: 2), at: "note")
            cloud.simulation.pass(.seconds(3))
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
            try? await two.container.scope.waitUntilSent(timeout: .seconds(5))
            var entry: DocumentEntry?
            for _ in 0..<20 {
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
                entry = try await two.container.item(at: "film")
                if entry?.incoming.isEmpty == false { break }
            }
            let coming = try #require(entry?.incoming.first)
            #expect(entry?.incoming.count == 1 && coming.size == 3_000_000 && coming.since != nil)
            #expect(try coming.device == one.session.account?.deviceID)
            #expect(try await two.text("film") == "old")
            #expect(try await two.container.item(at: "note")?.incoming.isEmpty == true)
            #expect(try await two.container.status().incoming.map(\.path) == ["/Documents/film"])
            // Who sends it knows it better.
            #expect(try await one.container.item(at: "film")?.incoming.isEmpty == true)
            one.session.setTransferLimits(TransferLimits())
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.item(at: "film")?.incoming.isEmpty == true)
            #expect(try await two.container.read("film") == film)
            let verification = try await two.container.scope.verify()
            #expect(verification.agrees)
        }
    }

    /// A film that nobody had before: the others hear of it while it comes, and see no item until it is there.
    @Test func whatIsNotThereYetIsSeenOnItsWay() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.makeFolder(at: "films")
            try await one.settle()
            try await two.settle()
            one.session.setTransferLimits(TransferLimits(upload: 50_000))
            let film = bytes(3_000_000, seed: 1)
            try await one.container.put(film, at: "films/film")
            try await one.container.put(bytes(2_000_000, seed: 3), at: "films/next")
            try await one.container.put(bytes(500_000, seed: 2), at: "films/note")
            cloud.simulation.pass(.seconds(3))
            var coming: [ComingDocument] = []
            for _ in 0..<20 where coming.isEmpty {
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
                coming = try await two.container.downloads.coming(in: "films")
            }
            #expect(coming.map(\.path) == ["/Documents/films/film", "/Documents/films/next"])
            let first = try #require(coming.first)
            #expect(first.content.size == 3_000_000 && first.content.since != nil)
            #expect(try first.content.device == one.session.account?.deviceID)
            #expect(try await two.container.status().coming.map(\.id) == coming.map(\.id))
            #expect(try await two.container.downloads.coming().isEmpty)
            // It is no item, and takes no name.
            #expect(try await two.container.item(at: "films/film") == nil)
            #expect(try await two.container.items(in: "films").allSatisfy { $0.name == "note" })
            #expect(try await two.container.status().fileCount <= 1)
            // Who sends it has it already, and is told of nothing but files.
            let waiting = try await one.container.scope.status().pending.flatMap(\.keys)
            #expect(waiting.allSatisfy { $0.rawValue.hasPrefix("/Documents/films/") })
            #expect(try await one.container.downloads.coming(isDeep: true).isEmpty)
            one.session.setTransferLimits(TransferLimits())
            try await one.settle()
            try await two.settle()
            #expect(try two.container.handle.read { try $0.comingItems() }.isEmpty)
            #expect(try await two.container.read("films/film") == film)
            for device in [one, two] { #expect(try await device.container.scope.verify().agrees) }
        }
    }

    /// What was given up before it was sent is not on its way any more, nor what was refused.
    @Test(arguments: [true, false]) func whatDoesNotComeIsNotOnItsWay(isRefused: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            one.session.setTransferLimits(TransferLimits(upload: 50_000))
            try await one.container.put(bytes(3_000_000, seed: 1), at: "film")
            cloud.simulation.pass(.seconds(3))
            for _ in 0..<50 {
                try await one.container.scope.waitUntilCurrent(timeout: .seconds(60))
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
                guard try await two.container.downloads.coming(isDeep: true).isEmpty else { break }
            }
            #expect(try await two.container.downloads.coming(isDeep: true).map(\.name) == ["film"])
            if isRefused { try cloud.setPlan(bytes: 1_000_000) } else { try await one.container.trash(["film"]) }
            one.session.setTransferLimits(TransferLimits())
            try await one.settle()
            if !isRefused { try await one.container.put(Data("x".utf8), at: "note") }
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.downloads.coming(isDeep: true).isEmpty)
            #expect(try await two.container.item(at: "film") == nil)
            for device in [one, two] { #expect(try await device.container.scope.verify().agrees) }
        }
    }

    @Test func whatIsRefusedIsNotOnItsWayAnyMore() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("old".utf8), at: "film")
            try await one.settle()
            try cloud.setPlan(bytes: 1_000_000)
            try await one.container.put(bytes(3_000_000, seed: 1), at: "film")
            try await one.settle()
            let refused = try await one.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/film"])
            try await two.settle()
            #expect(try await two.container.item(at: "film")?.incoming.isEmpty == true)
            #expect(try await two.text("film") == "old")
        }
    }

    /// What has expired is not on its way, whether the service has said so already or not; and nobody is told of a change
    /// of something that is no item.
    @Test func whatHasExpiredIsNotSeenAndNoAnnouncementIsAnItem() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("old".utf8), at: "there")
            try await one.settle()
            try await two.settle()
            let told = Mutex<Set<ItemName>>([])
            let events = two.container.scope.events
            let listening = Task {
                for await event in events {
                    if case .change(let change) = event { told.withLock { $0.formUnion(change.changedKeys) } }
                }
            }
            defer { listening.cancel() }
            one.session.setTransferLimits(TransferLimits(upload: 50_000))
            try await one.container.put(bytes(3_000_000, seed: 1), at: "film")
            try await one.container.put(bytes(3_000_000, seed: 2), at: "there")
            cloud.simulation.pass(.seconds(3))
            var isSeen = false
            for _ in 0..<50 where !isSeen {
                try await one.container.scope.waitUntilCurrent(timeout: .seconds(60))
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
                let coming = try await two.container.downloads.coming(isDeep: true)
                let there = try await two.container.item(at: "there")
                isSeen = !coming.isEmpty && there?.incoming.isEmpty == false
            }
            #expect(isSeen)
            let path = try DocumentPath("there")
            let later: (Int, Int) = try two.container.handle.read { documents in
                let now = try #require(documents.known.now)
                documents.known.now = now.advanced(by: DocumentLimits.announcementLifetime + .seconds(1))
                let item = try documents.item(at: path)
                return (
                    try documents.comingDocuments(in: DocumentPath("/"), isDeep: true).count,
                    try documents.incoming(to: item.wire).count
                )
            }
            #expect(later == (0, 0))
            one.session.setTransferLimits(TransferLimits())
            try await one.settle()
            try await two.settle()
            try await two.container.put(Data("x".utf8), at: "note")
            try await two.settle()
            let device = try #require(try one.session.account?.deviceID)
            let film = try #require(try await two.container.item(at: "film")?.id)
            #expect(told.withLock { $0.contains(film.name) && !$0.contains(DocumentID.coming(from: device).name) })
        }
    }
}
