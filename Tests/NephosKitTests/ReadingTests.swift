import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A device reads a store in pages.
@Suite struct ReadingTests {
    private static func page(
        _ values: [(String, Int64, UInt64)], at sequence: UInt64, next: (UInt64, String)? = nil
    ) -> WireReadChangesReply {
        var reply = WireReadChangesReply()
        reply.token = WireChangeToken(ChangeToken(epoch: 1, sequence: sequence))
        reply.complete = true
        reply.items = values.map { key, value, sequence in
            WireKeyValueItem(
                KeyValueItem(
                    key: ItemName(key), value: .integer(value), timestamp: HybridTimestamp(rawValue: sequence << 16),
                    deviceID: DeviceID("dev_other"), sequence: sequence))
        }
        if let next {
            reply.place.start = WireChangeToken(ChangeToken(epoch: 1, sequence: 5))
            reply.place.token = WireChangeToken(ChangeToken(epoch: 1, sequence: next.0))
            reply.place.item = next.1
        }
        return reply
    }

    /// A device whose requests are answered with these, and then not at all; what it asked for, by number.
    private func device(
        _ answer: @escaping (Int, WireReadChanges) -> Result<WireReadChangesReply, CloudError>?
    ) throws -> (Device, asked: Asked) {
        let device = try Device()
        let asked = Asked()
        device.cloud.overrides["ReadChanges"] = { request in
            guard let wire = try? request.body.decode(WireReadChanges.self) else { return nil }
            asked.requests.append(wire)
            return (answer(asked.requests.count, wire) ?? .failure(CloudError(.serviceBusy, "Later."))).map {
                Frame(encoding: $0)
            }
        }
        try device.signIn()
        return (device, asked)
    }

    private final class Asked {
        var requests: [WireReadChanges] = []
    }

    @Test func pagesAreAppliedTogetherAndTheNewestStateStands() throws {
        var isAway = true
        let (device, asked) = try device { _, request in
            switch request.place.item {
            case "" where request.after.sequence == 0:
                .success(Self.page([("a", 1, 1), ("b", 1, 2)], at: 5, next: (2, "b")))
            // Nobody answers for a while.
            case "b" where isAway: nil
            case "b": .success(Self.page([("c", 1, 3)], at: 6, next: (3, "c")))
            case "c": .success(Self.page([("a", 2, 6)], at: 6))
            default: nil
            }
        }
        device.network.run(for: .seconds(1))
        #expect(asked.requests.count > 1)
        #expect(try device.store.dictionary().isEmpty && !device.store.status().isInSync)
        isAway = false
        device.network.run(for: .seconds(20))
        #expect(try device.store.dictionary() == ["a": 2, "b": 1, "c": 1])
        #expect(try device.state().head == ChangeToken(epoch: 1, sequence: 6))
        // It went on where it was, and began nothing anew.
        let places = asked.requests.filter { $0.after.sequence == 0 }.map(\.place.item)
        let first = places.prefix { $0 != "c" }
        #expect(first.first == "" && first.dropFirst().allSatisfy { $0 == "b" } && places.count > first.count)
    }

    @Test func aSealedPlaceIsGivenBackAsItIsAlsoWithinOneSequence() throws {
        let seals = [Data("z".utf8), Data("a".utf8)]
        let (device, asked) = try device { number, _ in
            guard number <= 3 else { return nil }
            var page = Self.page([("\(number)", 1, 4)], at: 5, next: number < 3 ? (4, "") : nil)
            if number < 3 { page.place.sealed = seals[number - 1] }
            return .success(page)
        }
        device.network.run(for: .seconds(20))
        #expect(asked.requests.prefix(3).map(\.place.sealed) == [Data()] + seals)
        #expect(try device.store.dictionary() == ["1": 1, "2": 1, "3": 1])
    }

    @Test func aReadingThatExpiresBeginsAnewWithoutWhatItHad() throws {
        let (device, asked) = try device { number, _ in
            switch number {
            case 1: .success(Self.page([("gone", 1, 1)], at: 5, next: (1, "gone")))
            case 2: .failure(CloudError(.changeTokenExpired, "Deletions were forgotten."))
            case 3: .success(Self.page([("a", 1, 2)], at: 7, next: (2, "a")))
            case 4: .success(Self.page([("b", 1, 7)], at: 7))
            default: nil
            }
        }
        device.network.run(for: .seconds(30))
        #expect(asked.requests.prefix(4).map(\.place.item) == ["", "gone", "", "a"])
        #expect(try device.store.dictionary() == ["a": 1, "b": 1])
    }

    @Test func aServiceThatStandsStillIsNotAskedForEver() throws {
        let (device, asked) = try device { _, _ in
            .success(Self.page([("a", 1, 1)], at: 5, next: (1, "a")))
        }
        device.network.run(for: .seconds(5))
        #expect(asked.requests.count > 2 && asked.requests.count < 40)
        #expect(try device.store.dictionary().isEmpty)
        #expect(try device.store.status().problem?.code == .malformedRequest)
    }
}
