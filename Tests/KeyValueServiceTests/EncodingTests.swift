import NephosBus
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKeyValue

/// What is encoded by hand is, byte for byte, what the generated code makes of it.
@Suite struct EncodingTests {
    private let device = DeviceID("dev_1")
    private var stamp: MergeRule.Stamp {
        MergeRule.Stamp(timestamp: HybridTimestamp(rawValue: 0x0123_4567_89ab_cdef), device: device)
    }

    private func same<Wire: SwiftProtobuf.Message>(_ bytes: [UInt8], _: Wire.Type) throws -> Wire {
        let wire = try Wire(serializedBytes: bytes)
        let again: [UInt8] = try wire.serializedBytes()
        #expect(again == bytes)
        return wire
    }

    @Test(arguments: [0, 1, 127, 128, 300, 40_000])
    func aReplyWithEveryOutcome(valueBytes: Int) throws {
        let value = PropertyValue.string(String(repeating: "v", count: valueBytes)).canonicalBytes
        let stored = StoredKey(key: "k", stamp: stamp, sealed: Sealed(bytes: [1]), size: 1, sequence: 5)
        let reply = PushReply(
            token: ChangeToken(epoch: 1, sequence: 300), previousSequence: 299,
            outcomes: [
                .accepted(key: "a", stamp), .unchanged(stored), .superseded(by: stored, value: value, isOmitted: false),
                .superseded(by: stored, value: nil, isOmitted: true),
            ])
        let wire = try same(reply.frame().bytes, WirePushKeysReply.self)
        #expect(ChangeToken(wire.token) == reply.token)
        #expect(wire.previousSequence == 299)
        #expect(wire.outcomes.map(\.superseded) == [false, false, true, true])
        #expect(wire.outcomes.map(\.valueOmitted) == [false, false, false, true])
        #expect(wire.outcomes.map(\.current.sequence) == [300, 5, 5, 5])
        #expect(wire.outcomes.map(\.current.hasValue) == [false, false, true, false])
        #expect(wire.outcomes[2].current.value.string.utf8.count == valueBytes)
        #expect(
            wire.outcomes.allSatisfy { $0.current.deviceID == "dev_1" && $0.current.timestamp == 0x0123_4567_89ab_cdef }
        )
    }

    @Test func aNotificationOfSmallLargeAndDeletedKeys() throws {
        let caller = Caller(
            account: AccountID("acct_1"), device: device, app: AppID("app"),
            entitlements: Entitlements(store: StoreID("store"), containers: []),
            expires: Timestamp(milliseconds: 1), keyID: "key")
        let context = RequestContext(
            id: OperationID(high: 1, low: 2), causeID: nil,
            peer: Peer(connection: 1, publicKey: try #require(PublicKey(bytes: [UInt8](repeating: 1, count: 32)))),
            caller: caller, now: Timestamp(milliseconds: 2))
        let change = ScopeChange(
            scope: ScopeName(AccountID("acct_1"), "store"), partition: 5,
            token: ChangeToken(epoch: 1, sequence: 7),
            previousSequence: 6, previousPartitionSequence: 0, digest: .empty)
        let event = try KeyValueEvents.changed(
            [
                ChangedKey(key: "small", stamp: stamp, value: PropertyValue.integer(0).canonicalBytes),
                ChangedKey(
                    key: "large", stamp: stamp,
                    value: PropertyValue.string(String(repeating: "x", count: 5000)).canonicalBytes),
                // The value alone would go along; its item has more bytes than may.
                ChangedKey(
                    key: "nearly", stamp: stamp,
                    value: PropertyValue.string(String(repeating: "x", count: 1010)).canonicalBytes),
                ChangedKey(key: "gone", stamp: stamp, value: nil),
            ], by: change, context)
        let wire = try same(event.notification.bytes, WireNotification.self)
        #expect(wire.service == "keyvalue" && wire.scope == "store" && wire.deviceID == "dev_1")
        #expect(ChangeToken(wire.token) == change.token && wire.previousSequence == 6)
        #expect(wire.changes.map(\.item) == ["small", "large", "nearly", "gone"])
        #expect(wire.changes.map(\.deleted) == [false, false, false, true])
        #expect(wire.changes.map(\.body.isEmpty) == [false, true, true, false])
        let small = try same([UInt8](wire.changes[0].body), WireKeyValueItem.self)
        #expect(small.key == "small" && small.sequence == 7 && small.value.integer == 0 && small.hasValue)
        #expect(OperationID(bytes: wire.operationID) == context.id)
    }

    @Test func aCopyOfAWriterWritesForItself() {
        var writer = FieldWriter(reserving: 64)
        writer.text(1, "both")
        var copy = writer
        writer.text(2, "one")
        copy.text(2, "two")
        let handed = writer.handOver()
        writer.text(1, "later")
        #expect(handed.withUnsafeBytes { [UInt8]($0) } == [10, 4] + Array("both".utf8) + [18, 3] + Array("one".utf8))
        #expect(copy.take() == [10, 4] + Array("both".utf8) + [18, 3] + Array("two".utf8))
        #expect(copy.take() == [])
    }

    /// Anybody may send it, and as often as frames come.
    @Test(arguments: [2, 4]) func fourMebibytesThatAreNoTextCostNoTime(field: UInt8) {
        // The field, and its length as a varint.
        let bytes = [field << 3 | 2, 0x80, 0x80, 0x80, 0x02] + Array(repeating: 0xff, count: 4 << 20)
        let time = ContinuousClock().measure {
            #expect(throws: RequestEnvelope.Rejection.self) { try RequestEnvelope(decoding: [Frame(bytes)]) }
        }
        #expect(time < .milliseconds(100))
    }

    /// What takes the place of the first has as many bytes.
    @Test(
        arguments: [[0xf0, 0x9f, 0x98], [0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0x61, 0xe2, 0x82]] as [[UInt8]])
    func whatIsNoUTF8IsNoText(bytes: [UInt8]) throws {
        #expect(throws: FieldReader.Malformed.self) {
            try bytes.withUnsafeBytes { try FieldReader($0).text(0..<bytes.count) }
        }
        let long = Array(repeating: UInt8(ascii: "x"), count: 1000) + bytes
        #expect(throws: FieldReader.Malformed.self) {
            try long.withUnsafeBytes { try FieldReader($0).text(0..<long.count) }
        }
        let whole = Array("\u{fffd}e\u{301}\0".utf8)
        #expect(try whole.withUnsafeBytes { try FieldReader($0).text(0..<whole.count) }.utf8.elementsEqual(whole))
    }
}
