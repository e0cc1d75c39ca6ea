import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import Testing

@testable import NephosNotifications

/// No delivery is larger than a device's connection takes.
@Suite struct DeliveryBatchTests {
    private let key = ScopeKey(service: .keyValue, name: ScopeName(AccountID("acct_1"), "store"))

    private func notification(_ number: Int, items: Int, bodyBytes: Int, nameBytes: Int = 8) -> WireNotification {
        var notification = WireNotification()
        notification.scope = "store"
        notification.deviceID = "dev_writer"
        notification.previousSequence = UInt64(number)
        notification.changes = (0..<items).map { index in
            var change = WireChange()
            change.item = String(repeating: "k", count: nameBytes) + "\(index)"
            change.body = Data(count: bodyBytes)
            return change
        }
        return notification
    }

    private func frames(_ notifications: [WireNotification]) throws -> [WireDelivery] {
        var batch = DeliveryBatch()
        for notification in notifications {
            batch.add(try ServiceEvent.Notification(decoding: Frame(encoding: notification)), to: key)
        }
        return try batch.messages(for: key, to: nil).map { message in
            #expect(message.count == 1 && message[0].count <= DeliveryBatch.frameBytesMax + 1024)
            return try ReplyEnvelope(decoding: message).result.get().decode(WireDelivery.self)
        }
    }

    @Test func manyLargeChangesGoInSeveralFramesAndNoneIsLost() throws {
        let frames = try frames((0..<128).map { notification($0, items: 16, bodyBytes: 4096) })
        #expect(frames.count > 16)
        #expect(frames.flatMap(\.notifications).map(\.previousSequence) == (0..<128).map(UInt64.init))
        #expect(frames.flatMap(\.notifications).flatMap(\.changes).allSatisfy { $0.body.count == 4096 })
    }

    @Test func smallChangesShareAFrame() throws {
        let frames = try frames((0..<256).map { notification($0, items: 1, bodyBytes: 100) })
        #expect(frames.map(\.notifications.count) == [128, 128])
    }

    @Test func oneThatIsTooLargeComesWithoutItsStates() throws {
        let frames = try frames([notification(1, items: 200, bodyBytes: 40_000)])
        let changes = frames.flatMap(\.notifications).flatMap(\.changes)
        #expect(changes.count == 200 && changes.allSatisfy(\.body.isEmpty))
    }

    @Test func oneWithTooManyNamesSaysEnoughToBePulled() throws {
        let frames = try frames([notification(1, items: 3000, bodyBytes: 1, nameBytes: 250)])
        let changes = frames.flatMap(\.notifications).flatMap(\.changes)
        #expect(changes.count == 1 && changes[0].body.isEmpty)
    }
}
