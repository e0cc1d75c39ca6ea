import Foundation
import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

/// A device that writes fifty small values a second, whatever else goes on.
struct PacedWriter {
    struct Outcome: Sendable {
        var latencies = Latencies()
        /// How many writes failed, by the code of their error.
        var failures: [String: Int] = [:]
        fileprivate var open = 0
    }

    private static let interval: Duration = .milliseconds(20)

    private let enrolment: Enrolment
    private let device: LoadDevice
    private let transport: ZeroMQTransport

    init(_ enrolment: Enrolment, _ device: LoadDevice, transport: ZeroMQTransport) {
        self.enrolment = enrolment
        self.device = device
        self.transport = transport
    }

    func run(for duration: Duration) throws -> Outcome {
        let outcome = Shared(Outcome())
        let done = DispatchSemaphore(value: 0)
        let store = enrolment.store
        let address = enrolment.keyValue
        let loop = try transport.startLoop(named: "writer") { [device] loop in
            let client = try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(endpoints: [address.endpoint], serverKey: address.key, keys: device.keys))
            var start = Duration.zero
            // Each push has its intended time, so that a stall shows in all that it delays.
            func next(_ number: Int) {
                let intended = start + Self.interval * number
                guard intended - start < duration else {
                    loop.schedule(after: .seconds(5)) { done.signal() }
                    return
                }
                let body = WirePushKeys.body(store, keys: ["key-\(number % 100)"], bytes: 100)
                outcome.state.withLock { $0.open += 1 }
                client.call("PushKeys", body: body, accessToken: device.accessToken, timeout: .seconds(20)) { reply in
                    outcome.state.withLock {
                        $0.open -= 1
                        switch reply.result {
                        case .success: $0.latencies.record(loop.monotonicNow - intended)
                        case .failure(let error): $0.failures["\(error.code)", default: 0] += 1
                        }
                    }
                }
                loop.schedule(after: max(.zero, intended + Self.interval - loop.monotonicNow)) { next(number + 1) }
            }
            // To connect takes as long as many writes, and is not what is measured.
            let first = WirePushKeys.body(store, keys: ["key-0"], bytes: 100)
            client.call("PushKeys", body: first, accessToken: device.accessToken, timeout: .seconds(20)) { _ in
                start = loop.monotonicNow
                next(0)
            }
        }
        done.wait()
        loop.stop()
        var result = outcome.state.withLock { $0 }
        if result.open > 0 { result.failures["no answer within 5 s of the end"] = result.open }
        return result
    }
}

/// What a loop's thread and the command's share.
final class Shared<Value: Sendable>: Sendable {
    let state: Mutex<Value>
    init(_ value: Value) { state = Mutex(value) }
}

extension WirePushKeys {
    /// A push of as many keys.
    ///
    /// - Parameters:
    ///   - bytes: Of each value; nil: they are deleted.
    ///   - age: How old the writes are, in seconds.
    static func body(_ store: String, keys: [String], bytes: Int? = nil, age: UInt64 = 0) -> Frame {
        Frame(encoding: push(store, keys: keys, bytes: bytes, age: age))
    }

    static func push(_ store: String, keys: [String], bytes: Int? = nil, age: UInt64 = 0) -> WirePushKeys {
        var push = WirePushKeys()
        push.storeID = store
        let time = UInt64(Date().timeIntervalSince1970 * 1000) - age * 1000
        push.writes = keys.map {
            var write = WireKeyWrite()
            write.key = $0
            if let bytes { write.value = WirePropertyValue(.string(String(repeating: "v", count: bytes))) }
            write.timestamp = time << 16
            return write
        }
        return push
    }
}

extension Enrolment {
    /// Asks for the whole store.
    var wholeRead: Frame { Frame(encoding: ChangesReading(.scope(store), after: .zero).request) }

    /// Fills the store with so many keys.
    func fill(as device: LoadDevice, keys: Int, bytes: Int) throws {
        _ = try call(
            WirePushKeys.push(store, keys: (0..<keys).map { "full-\($0)" }, bytes: bytes), to: keyValue,
            keys: device.keys, accessToken: device.accessToken, returning: WirePushKeysReply.self)
    }
}
