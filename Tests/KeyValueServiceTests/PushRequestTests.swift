import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKeyValue

/// A push that is read by hand is what the generated code would read.
@Suite struct PushRequestTests {
    private func generated(_ bytes: [UInt8]) throws -> PushRequest {
        let wire = try WirePushKeys(serializedBytes: bytes)
        var request = try PushRequest(decoding: Frame([]))
        request.storeID = wire.storeID
        request.head = ChangeToken(wire.head)
        request.writes = try wire.writes.map {
            PushRequest.Write(
                key: ItemName($0.key), value: $0.hasValue ? try PropertyValue($0.value).canonicalBytes : nil,
                timestamp: $0.timestamp, deviceID: $0.deviceID, seenTimestamp: $0.seenTimestamp)
        }
        return request
    }

    private func areSame(_ left: PushRequest, _ right: PushRequest?) -> Bool {
        left.storeID == right?.storeID && left.writes == right?.writes && left.head == right?.head
            && left.head.check == right?.head.check
    }

    @Test func whatIsTooMuchIsNotReadToItsEnd() throws {
        // The last one would be malformed.
        let many = Frame([UInt8]((0...PushLimits.writesMax).flatMap { _ in [0x12, 0] } + [0x12, 200]))
        do {
            _ = try PushRequest(decoding: many)
            Issue.record("It was taken.")
        } catch {
            #expect(error.code == .limitExceeded)
        }
    }

    private func value(_ random: inout SplitMix64) -> WirePropertyValue {
        switch Int.random(in: 0..<10, using: &random) {
        // Of no type.
        case 0: return WirePropertyValue()
        case 1:
            var value = WirePropertyValue()
            value.dictionary.entries = ["b", "a", "ü"].map {
                var entry = WirePropertyDictionary.Entry()
                entry.key = $0
                entry.value = self.value(&random)
                return entry
            }
            return value
        default: return WirePropertyValue(.random(using: &random))
        }
    }

    private func push(_ random: inout SplitMix64) throws -> [UInt8] {
        var push = WirePushKeys()
        push.storeID = ["", "default", "TEAM.app"].randomElement(using: &random) ?? ""
        push.writes = (0..<Int.random(in: 0...3, using: &random)).map { number in
            var write = WireKeyWrite()
            write.key = "key-\(number)"
            if Int.random(in: 0..<4, using: &random) > 0 { write.value = value(&random) }
            write.timestamp = random.next() >> UInt64.random(in: 0...63, using: &random)
            if Bool.random(using: &random) { write.deviceID = "dev_ü" }
            if Bool.random(using: &random) { write.seenTimestamp = random.next() }
            return write
        }
        if Bool.random(using: &random) {
            push.head.epoch = random.next() >> UInt64.random(in: 0...63, using: &random)
            push.head.sequence = random.next() >> UInt64.random(in: 0...63, using: &random)
            let count = [0, 1, 15, 16, 16, 16, 17].randomElement(using: &random) ?? 0
            push.head.check = Data((0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) })
        }
        return try push.serializedBytes()
    }

    @Test func whatItReadsIsWhatTheGeneratedCodeReads() throws {
        var random = SplitMix64(seed: 1)
        var readable = 0
        for _ in 0..<2000 {
            let bytes = try push(&random)
            let expected = Result { try generated(bytes) }
            let read = Result { try PushRequest(decoding: Frame(bytes)).canonical() }
            switch (read, expected) {
            case (.success(let read), .success(let expected)):
                readable += 1
                #expect(areSame(read, expected), "\(bytes.prefix(64))")
            case (.failure(let read), .failure(let expected)):
                #expect((read as? CloudError)?.code == (expected as? CloudError)?.code)
            default: Issue.record("One of the two refuses \(bytes.prefix(64)).")
            }
        }
        #expect(readable > 1000)
    }

    /// It never takes what the generated code refuses, nor reads it otherwise.
    @Test func damagedBytesAreNotReadOtherwise() throws {
        var random = SplitMix64(seed: 2)
        var readable = 0
        let good = try (0..<500).map { _ in try push(&random) }
        for bytes in BadBytes(4000, from: good, seed: 3) {
            guard let read = try? PushRequest(decoding: Frame(bytes)).canonical() else { continue }
            readable += 1
            #expect(areSame(read, try? generated(bytes)), "\(bytes.prefix(64))")
        }
        #expect(readable > 300)
    }

    @Test func aValueInPartsIsTheirSum() throws {
        var first = WirePropertyValue()
        first.array.values = [WirePropertyValue(.integer(1))]
        var second = WirePropertyValue()
        second.array.values = [WirePropertyValue(.integer(2))]
        var write = FieldWriter()
        write.text(1, "k")
        write.data(2, try first.serializedBytes() as [UInt8], isPresent: true)
        write.data(2, try second.serializedBytes() as [UInt8], isPresent: true)
        write.number(3, 9)
        var push = FieldWriter()
        push.data(2, write.take(), isPresent: true)
        let bytes = push.take()
        let read = try PushRequest(decoding: Frame(bytes)).canonical()
        #expect(read.writes == (try generated(bytes)).writes)
        #expect(read.writes.first?.value == PropertyValue.array([.integer(1), .integer(2)]).canonicalBytes)
    }

    /// As many as fit into a push: reading them takes time by their number, and not by its square.
    @Test func aValueInVeryManyPartsHoldsNobodyUp() throws {
        func shortestTime(parts: Int) throws -> Duration {
            var write = FieldWriter()
            write.text(1, "k")
            for _ in 0..<parts { write.data(2, [1 << 3, 1] as [UInt8]) }
            var push = FieldWriter()
            push.data(2, write.take(), isPresent: true)
            let frame = Frame(push.take())
            #expect(frame.count <= PushLimits.bytesMax)
            return try (0..<3).map { _ in
                try ContinuousClock().measure {
                    let read = try PushRequest(decoding: frame)
                    #expect(read.writes.first?.value?.count == parts * 2)
                    // So much that is not canonical is not decoded at all.
                    #expect(throws: CloudError.self) { try read.canonical() }
                }
            }.min() ?? .zero
        }
        let most = PushLimits.bytesMax / 4 - 100
        // Eight times as long, if it goes by the number; more than thirty times, if by its square.
        #expect(try shortestTime(parts: most) < shortestTime(parts: most / 8) * 20)
    }

    @Test func aLengthInMoreBytesThanItTakesIsMadeCanonical() throws {
        let value: [UInt8] = [4 << 3 | 2, 0x83, 0x00] + Array("abc".utf8)
        var write = FieldWriter()
        write.text(1, "k")
        write.data(2, value, isPresent: true)
        var push = FieldWriter()
        push.data(2, write.take(), isPresent: true)
        let read = try PushRequest(decoding: Frame(push.take())).canonical()
        #expect(read.writes.first?.value == PropertyValue.string("abc").canonicalBytes)
    }
}
