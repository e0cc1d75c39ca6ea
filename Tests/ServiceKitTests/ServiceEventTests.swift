import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import SwiftProtobuf
import Testing

/// An event that is read by hand is what the generated code would read.
@Suite struct ServiceEventTests {
    private func text(_ random: inout SplitMix64) -> String {
        String(repeating: "é", count: [0, 1, 63, 64, 70].randomElement(using: &random) ?? 0)
    }

    private func token(_ random: inout SplitMix64) -> WireChangeToken {
        var token = WireChangeToken()
        token.epoch = random.next() >> UInt64.random(in: 0..<64, using: &random)
        token.sequence = random.next() >> UInt64.random(in: 0..<64, using: &random)
        if Bool.random(using: &random) {
            token.check = Data((0..<16).map { _ in UInt8.random(in: 1...255, using: &random) })
        }
        return token
    }

    private func event(_ random: inout SplitMix64) -> WireEvent {
        var event = WireEvent()
        event.service = text(&random)
        event.partition = UInt32.random(in: 0..<200, using: &random)
        if Bool.random(using: &random) { event.position = token(&random) }
        event.previousSequence = random.next()
        guard Bool.random(using: &random) else { return event }
        var notification = WireNotification()
        notification.service = text(&random)
        notification.owner = text(&random)
        notification.scope = text(&random)
        notification.accessChanged = Bool.random(using: &random)
        notification.reason = [.serverChange, .quotaViolationChange].randomElement(using: &random) ?? .serverChange
        if Bool.random(using: &random) { notification.token = token(&random) }
        notification.previousSequence = random.next()
        notification.deviceID = text(&random)
        notification.changes = (0..<Int.random(in: 0..<3, using: &random)).map { _ in
            var change = WireChange()
            change.item = text(&random)
            change.body = Data(count: Int.random(in: 0..<200, using: &random))
            return change
        }
        if Bool.random(using: &random) { notification.digest = Data((0..<8).map(UInt8.init)) }
        event.notification = notification
        return event
    }

    private func expectSame(_ event: ServiceEvent, _ wire: WireEvent) throws {
        #expect(event.service.utf8.elementsEqual(wire.service.utf8))
        #expect(event.partition == Int(wire.partition))
        #expect(event.position == ChangeToken(wire.position))
        #expect(event.position.check == ChangeToken(wire.position).check)
        #expect(event.previousSequence == wire.previousSequence)
        #expect((event.notification != nil) == wire.hasNotification)
        guard let notification = event.notification else { return }
        #expect(notification.scope.owner == Owner(wire.notification.owner))
        #expect(notification.scope.path == ItemName(wire.notification.scope))
        #expect(notification.isAccessChanged == wire.notification.accessChanged)
        #expect(notification.reason == wire.notification.reason)
        #expect(notification.token == ChangeToken(wire.notification.token))
        #expect(notification.token.check == ChangeToken(wire.notification.token).check)
        #expect(notification.device == DeviceID(wire.notification.deviceID))
        #expect(notification.digest == wire.notification.digest)
        #expect(try notification.decoded() == wire.notification)
    }

    @Test func theWholeBatchIsReadInPlace() throws {
        var random = SplitMix64(seed: 1)
        for _ in 0..<300 {
            var batch = WireEventBatch()
            batch.events = (0..<Int.random(in: 0..<4, using: &random)).map { _ in event(&random) }
            let events = try ServiceEvent.batch(Frame(encoding: batch))
            #expect(events.count == batch.events.count)
            for (event, wire) in zip(events, batch.events) { try expectSame(event, wire) }
        }
    }

    @Test func damagedBytesAreAnErrorOrAnEventAndNeverATrap() throws {
        var random = SplitMix64(seed: 2)
        var accepted = 0
        for _ in 0..<3000 {
            var batch = WireEventBatch()
            batch.events = [event(&random)]
            var bytes = Frame(encoding: batch).bytes
            if !bytes.isEmpty {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8(truncatingIfNeeded: random.next())
            }
            if Int.random(in: 0..<4, using: &random) == 0 { bytes.removeLast(min(2, bytes.count)) }
            guard let events = try? ServiceEvent.batch(Frame(bytes)) else { continue }
            // Whatever is accepted can be passed on and looked at.
            for event in events { _ = try? event.notification?.decoded() }
            guard let wire = try? WireEventBatch(serializedBytes: bytes) else { continue }
            #expect(events.count == wire.events.count)
            for (event, wire) in zip(events, wire.events) { try expectSame(event, wire) }
            accepted += 1
        }
        #expect(accepted > 200)
    }

    @Test func whatIsOfAnotherTypeOrTwiceIsRefused() throws {
        // Field 5, a number instead of a message.
        #expect(throws: CloudError.self) { try ServiceEvent.batch(Frame([0x0a, 0x02, 0x28, 0x01])) }
        // Field 5, twice.
        #expect(throws: CloudError.self) { try ServiceEvent.batch(Frame([0x0a, 0x04, 0x2a, 0x00, 0x2a, 0x00])) }
        // A text that is no UTF-8.
        #expect(throws: CloudError.self) { try ServiceEvent.batch(Frame([0x0a, 0x03, 0x0a, 0x01, 0xff])) }
        #expect(try ServiceEvent.batch(Frame([])).isEmpty)
    }
}
