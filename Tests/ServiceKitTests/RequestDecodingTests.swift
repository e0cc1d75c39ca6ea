import Bus
import Core
import Foundation
import SwiftProtobuf
import Testing
import Wire

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
        request.accessToken = String(repeating: "t", count: Int.random(in: 0...300, using: &generator))
        request.timeoutMilliseconds = Bool.random(using: &generator) ? 0 : .random(in: 0...(.max), using: &generator)
        request.causeID = bytes(Bool.random(using: &generator) ? 0 : 16)
        request.body = bytes(Int.random(in: 0...400, using: &generator))
        return request
    }

    private func check(_ bytes: [UInt8]) {
        let wire = try? WireRequest(serializedBytes: bytes)
        do throws(RequestEnvelope.Rejection) {
            let envelope = try RequestEnvelope(decoding: [Frame(bytes)])
            #expect(envelope.method == wire?.method)
            #expect(Data(envelope.id.bytes) == wire?.requestID)
            #expect(envelope.accessToken == wire?.accessToken)
            let timeout = wire.map {
                $0.timeoutMilliseconds == 0 ? nil : Duration.milliseconds(Int64($0.timeoutMilliseconds))
            }
            #expect(envelope.timeout == timeout)
            #expect(envelope.causeID == wire.flatMap { OperationID(bytes: $0.causeID) })
            #expect(Data(envelope.body.bytes) == wire?.body)
        } catch {
            let isRefused = wire.map { $0.requestID.count != 16 || $0.version != 1 } ?? true
            #expect(isRefused || error.error.code == .malformedRequest)
            // Of what does not decode, the id that stood before the damage.
            guard let id = error.id else { return }
            if let wire {
                #expect(OperationID(bytes: wire.requestID) == id)
            } else {
                #expect(bytes.indices.contains { bytes[$0...].starts(with: id.bytes) })
            }
        }
    }

    @Test func wholeRequests() throws {
        var generator = SplitMix64(seed: 1)
        var accepted = 0
        for _ in 0..<2000 {
            let request = request(&generator)
            let bytes: [UInt8] = try request.serializedBytes()
            check(bytes)
            guard (try? RequestEnvelope(decoding: [Frame(bytes)])) != nil else { continue }
            accepted += 1
            #expect(request.requestID.count == 16 && request.version == 1)
        }
        #expect(accepted > 200)
    }

    @Test func damagedRequests() throws {
        var generator = SplitMix64(seed: 2)
        for _ in 0..<10_000 {
            var bytes: [UInt8] = try request(&generator).serializedBytes()
            for _ in 0..<Int.random(in: 1...4, using: &generator) where !bytes.isEmpty {
                let place = Int.random(in: 0..<bytes.count, using: &generator)
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: bytes[place] = .random(in: .min ... .max, using: &generator)
                case 1: bytes.removeSubrange(place...)
                case 2: bytes.insert(.random(in: .min ... .max, using: &generator), at: place)
                default: bytes.removeFirst(min(bytes.count, place % 8))
                }
            }
            check(bytes)
        }
    }
}
