import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Whatever a server sends, a device makes something of it or says that it is no reply.
@Suite struct ReplyDecodingTests {
    private func reply(_ random: inout SplitMix64) -> WireReply {
        func number() -> UInt64 { random.next() >> UInt64.random(in: 0...63, using: &random) }
        var reply = WireReply()
        let length = [0, 1, 15, 16, 16, 16, 17].randomElement(using: &random) ?? 0
        reply.requestID = Data((0..<length).map { _ in UInt8(truncatingIfNeeded: random.next()) })
        if Bool.random(using: &random) {
            reply.body = Data(repeating: 7, count: Int(number() % 300))
        } else {
            reply.failure.code = UInt32(truncatingIfNeeded: number() % 2000)
            reply.failure.message = "Not now."
            reply.failure.details = ["reason": "test"]
            reply.failure.retryAfterMilliseconds = UInt32(truncatingIfNeeded: number())
        }
        if Bool.random(using: &random) {
            reply.budget.capacity = UInt32(truncatingIfNeeded: number())
            reply.budget.remaining = UInt32(truncatingIfNeeded: number())
            reply.budget.refillMicroseconds = number()
        }
        return reply
    }

    @discardableResult
    private func check(_ bytes: [UInt8]) throws -> Bool {
        guard let wire = try? WireReply(serializedBytes: bytes) else {
            let error = #expect(throws: CloudError.self) { try ReplyEnvelope(decoding: [Frame(bytes)]) }
            #expect(error?.code == .malformedRequest)
            return false
        }
        let envelope = try ReplyEnvelope(decoding: [Frame(bytes)])
        #expect(envelope.id.map { Data($0.bytes) } == (wire.requestID.count == 16 ? wire.requestID : nil))
        switch envelope.result {
        case .success(let body): #expect(!wire.hasFailure && Data(body.bytes) == wire.body)
        case .failure(let error):
            #expect(wire.hasFailure && error.message == wire.failure.message)
            #expect(error.code.number == wire.failure.code || error.code == .internalError)
            #expect((error.retryAfter ?? .zero) == .milliseconds(Int64(wire.failure.retryAfterMilliseconds)))
        }
        #expect((envelope.budget != nil) == wire.hasBudget)
        if let budget = envelope.budget {
            #expect(budget.capacity == Int(wire.budget.capacity) && budget.remaining == Int(wire.budget.remaining))
            #expect(budget.refill == .microseconds(Int64(clamping: wire.budget.refillMicroseconds)))
        }
        // Who takes it over says it again.
        let again = try ReplyEnvelope(decoding: envelope.encoded())
        #expect(again.id == envelope.id && again.budget?.capacity == envelope.budget?.capacity)
        return true
    }

    @Test func wholeReplies() throws {
        var random = SplitMix64(seed: 1)
        for _ in 0..<1000 {
            let isRead = try check(reply(&random).serializedBytes())
            #expect(isRead)
        }
    }

    @Test func damagedReplies() throws {
        var random = SplitMix64(seed: 2)
        let good: [[UInt8]] = try (0..<300).map { _ in try reply(&random).serializedBytes() }
        var readable = 0
        for bytes in BadBytes(4000, from: good, seed: 3) where try check(bytes) { readable += 1 }
        #expect(readable > 500)
        #expect(throws: CloudError.self) { try ReplyEnvelope(decoding: []) }
    }
}
