import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Answers to pushes that were given in an epoch that is over, and come after this device has heard of the next.
@Suite struct LateAnswerTests {
    /// The service comes back from an old copy while the container's first request is on its way, and this device hears
    /// of it; then the answer comes that was given before.
    ///
    /// - Returns: Where the copy stood before the answer came.
    private func answerLate(
        _ cloud: ContainerCloud, _ device: ContainerCloud.Device, _ container: UbiquityContainer,
        restoring copy: StorageCopy
    ) async throws -> ScopeState {
        let engine = device.session.engine
        var position: Int64 = 0
        let old = try await container.head()
        try device.session.local.write { database in
            let rows = try container.handle.documents(database).rows
            var operation = try #require(try rows.operations().first)
            position = operation.position
            operation.state = .sent
            operation.head = old
            // Not sent again before that.
            operation.nextAttempt = engine.stamp.now.advanced(by: .seconds(50))
            try rows.update(operation)
        }
        try cloud.simulation.use { try $0.restore(copy, of: .documents) }
        device.setOffline(false)
        try await container.scope.waitUntilCurrent(timeout: .seconds(10))
        let sent = position
        let (before, settled) = try await container.scope.perform { driver, completion in
            completion(
                Result { () throws(CloudError) in
                    try driver.write { rows in
                        let operation = try #require(try rows.operation(at: sent))
                        let before = try rows.state()
                        let request = try WireApplyChanges(serializedBytes: operation.payload)
                        var reply = WireApplyChangesReply()
                        reply.token = WireChangeToken(ChangeToken(epoch: old.epoch, sequence: old.sequence + 100))
                        reply.previousSequence = old.sequence
                        reply.items = try request.changes.map { change in
                            var item = WireChange()
                            item.item = try #require(DocumentID(bytes: change.item)).name.rawValue
                            item.sequence = old.sequence + 100
                            var body = WireDocumentItem()
                            body.kind = change.create.kind
                            body.parent = change.create.parent
                            body.name = change.create.name
                            body.placeVersion = change.create.placeVersion
                            body.content = change.create.content
                            if !change.create.hasContent { body.clearContent() }
                            item.body = try body.serializedData()
                            return item
                        }
                        return (before, try driver.accept(operation, Frame(encoding: reply), in: rows))
                    }
                })
        }
        #expect(settled == .elsewhere)
        #expect(before.head.epoch > old.epoch)
        return before
    }

    @Test func anAnswerFromAnEpochThatIsOverIsNotStoredAndWhatItTookIsOfferedAgain() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(60))
            try await one.container.put(Data("1".utf8), at: "there")
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.put(Data("2".utf8), at: "lost")
            try await one.settle()
            one.setOffline(true)
            let made = try await one.container.makeFolder(at: "new")
            let before = try await answerLate(cloud, one, one.container, restoring: copy)
            try one.container.handle.read { documents in
                let after = try documents.rows.state()
                #expect(after.head == before.head && after.digest == before.digest)
                #expect(try documents.synced(made.id.name) == nil)
            }
            // Nor is it lost: what was brought back does not have it.
            #expect(try await one.container.item(at: "new")?.id == made.id)
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.item(at: "new")?.id == made.id)
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await one.container.scope.verify().agrees)
        }
    }

    @Test func nothingLeavesItsContainerForAnAnswerFromAnEpochThatIsOver() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let other = try await one.openOther()
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(60))
            try await one.container.put(Data("1".utf8), at: "there")
            try await other.put(Data("2".utf8), at: "first")
            try await one.settle()
            try await other.scope.waitUntilSent(timeout: .seconds(60))
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await other.put(Data("3".utf8), at: "lost")
            try await other.scope.waitUntilSent(timeout: .seconds(60))
            one.setOffline(true)
            try await one.container.move("there", to: "moved", in: other)
            _ = try await answerLate(cloud, one, other, restoring: copy)
            one.simulation.pass(.seconds(5))
            for container in [other, one.container] {
                try await container.scope.waitUntilSent(timeout: .seconds(60))
                try await container.scope.waitUntilCurrent(timeout: .seconds(60))
            }
            // The server may lack some of it again: it is in both, and a person hears of it.
            #expect(try await one.text("there") == "1")
            #expect(try await one.container.scope.status().refused.map(\.error.code) == [.constraintViolation])
            #expect(String(decoding: try await other.read("moved"), as: UTF8.self) == "1")
        }
    }
}
