import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Requests are read in place; what comes out is what the generated code reads.
@Suite struct RequestDecodingTests {
    private func request(_ generator: inout SplitMix64) -> WireRequest {
        func bytes(_ count: Int) -> Data {
            Data((0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
        }
        var request = WireRequest()
        request.version = Bool.random(using: &generator) ? 1 : UInt32.random(in: 0...3, using: &generator)
        request.method =
            ["", "PushKeys", "Größe", String(repeating: "m", count: 200)].randomElement(using: &generator) ?? ""
        request.requestID = bytes(Bool.random(using: &generator) ? 16 : Int.random(in: 0...20, using: &generator))
        if Bool.random(using: &generator) {
            request.accessToken = String(repeating: "t", count: Int.random(in: 0...300, using: &generator))
        } else {
            let length = Int.random(in: 0..<20, using: &generator)
            request.accessTokenDigest = bytes(length < 4 ? length : TokenDigest.byteCount)
        }
        request.timeoutMilliseconds = Bool.random(using: &generator) ? 0 : .random(in: 0...(.max), using: &generator)
        request.causeID = bytes(Bool.random(using: &generator) ? 0 : 16)
        request.body = bytes(Int.random(in: 0...400, using: &generator))
        return request
    }

    /// Whether the request can be served at all.
    private func isComplete(_ wire: WireRequest) -> Bool {
        wire.requestID.count == OperationID.byteCount && wire.version == protocolVersion
            && [0, TokenDigest.byteCount].contains(wire.accessTokenDigest.count)
    }

    /// - Returns: Whether it was read.
    @discardableResult
    private func check(_ bytes: [UInt8]) throws -> Bool {
        let wire = try? WireRequest(serializedBytes: bytes)
        do throws(RequestEnvelope.Rejection) {
            let envelope = try RequestEnvelope(decoding: [Frame(bytes)])
            #expect(envelope.method == wire?.method)
            #expect(Data(envelope.id.bytes) == wire?.requestID)
            #expect(envelope.accessToken == wire?.accessToken)
            #expect(envelope.accessTokenDigest.map { Data($0.bytes) } ?? Data() == wire?.accessTokenDigest)
            let timeout = wire.map {
                $0.timeoutMilliseconds == 0 ? nil : Duration.milliseconds(Int64($0.timeoutMilliseconds))
            }
            #expect(envelope.timeout == timeout)
            #expect(envelope.causeID == wire.flatMap { OperationID(bytes: $0.causeID) })
            #expect(Data(envelope.body.bytes) == wire?.body)
            return true
        } catch {
            // A field that has another type than it should have is unknown to the generated code, and refused here.
            if let wire, isComplete(wire) { #expect(!wire.unknownFields.data.isEmpty, "\(bytes) \(wire)") }
            #expect([.malformedRequest, .incompatibleVersion].contains(error.error.code))
            // Of what does not decode, the id that stood before the damage.
            guard let id = error.id else { return false }
            if let wire {
                #expect(OperationID(bytes: wire.requestID) == id)
            } else {
                #expect(bytes.indices.contains { bytes[$0...].starts(with: id.bytes) })
            }
            return false
        }
    }

    @Test func wholeRequests() throws {
        var generator = SplitMix64(seed: 1)
        var accepted = 0
        for _ in 0..<1000 {
            let request = request(&generator)
            let isRead = try check(request.serializedBytes())
            #expect(isRead == isComplete(request))
            if isRead { accepted += 1 }
        }
        #expect(accepted > 100)
    }

    @Test func damagedRequests() throws {
        var generator = SplitMix64(seed: 2)
        let good: [[UInt8]] = try (0..<300).map { _ in try request(&generator).serializedBytes() }
        var accepted = 0
        for bytes in BadBytes(4000, from: good, seed: 3) where try check(bytes) { accepted += 1 }
        #expect(accepted > 200)
    }
}
