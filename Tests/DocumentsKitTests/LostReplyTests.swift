import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A change has arrived, its answer has not, and the device is cut off: what is done then comes after it, whatever it is,
/// and nobody is in conflict with themselves.
@Suite struct LostReplyTests {
    /// What is done to `f` twice; `isNew`: the first time makes it.
    enum Change: CaseIterable {
        case move, replace, replaceByLong, attributes, rendition, trash, restore, createAndReplace, createAndTrash
        case createAndMove, folder
    }

    private func change(_ change: Change, _ number: Int, _ container: UbiquityContainer) async throws {
        let long = Data(repeating: UInt8(number), count: 100_000)
        switch change {
        case .move: _ = try await container.move(number == 1 ? "f" : "f 1", to: "f \(number)")
        case .replace: try await container.put(Data("\(number)".utf8), at: "f")
        case .replaceByLong: try await container.put(long, at: "f")
        case .attributes: _ = try await container.setAttributes([.tags(["\(number)"])], of: "f")
        case .rendition: _ = try await container.renditions.set(Data("r \(number)".utf8), named: "r", of: "f")
        case .trash:
            if number == 1 { _ = try await container.trash(["f"]) } else { _ = try await container.trash.restore() }
        case .restore:
            if number == 1 { _ = try await container.trash.restore() } else { _ = try await container.trash(["f"]) }
        case .createAndReplace: try await container.put(number == 1 ? Data("new".utf8) : long, at: "new")
        case .createAndTrash:
            if number == 1 {
                try await container.put(long, at: "new")
            } else {
                _ = try await container.trash(["new"])
            }
        case .createAndMove:
            if number == 1 {
                try await container.put(long, at: "new")
            } else {
                _ = try await container.move("new", to: "g/moved")
            }
        case .folder:
            if number == 1 {
                _ = try await container.makeFolder(at: "h")
            } else {
                try await container.put(Data("in".utf8), at: "h/in")
            }
        }
    }

    /// What the container has, as far as a person sees it.
    private func sight(_ device: ContainerCloud.Device) async throws -> [String] {
        var sight: [String] = []
        for item in try await device.container.items() {
            var text = "\(item.path) \(item.tags) \(item.conflictCount)"
            for name in item.renditionNames {
                text +=
                    " "
                    + String(
                        decoding: try await device.container.renditions.read(named: name, of: item.id), as: UTF8.self)
            }
            if item.kind != .folder { text += " \(try await device.container.read(item.id).hashValue)" }
            sight.append(text)
        }
        return sight.sorted()
    }

    /// Whether the change itself is on its way, and not only what is told or stored before it.
    private func isSent(by device: ContainerCloud.Device) throws -> Bool {
        try device.container.handle.read { documents in
            try documents.rows.operations().contains { operation in
                guard operation.state == .sent, try DocumentQuestion(operation.payload) == nil else { return false }
                return try !WireApplyChanges(serializedBytes: operation.payload).changes.allSatisfy(\.announces)
            }
        }
    }

    /// The refusal says nothing of the first attempt, which was carried out.
    @Test func aRepeatThatIsRefusedForItsRateUndoesNothingThatCameAfterIt() async throws {
        var budgets = BudgetConfiguration.unlimited
        budgets.device = .init(capacity: 300, refillPerSecond: 1)
        try await withContainers(budgets: budgets) { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.container.put(Data("0".utf8), at: "f")
            for device in [one, two] { try await device.settle() }
            cloud.simulation.use { $0.network.faults = Faults(latency: .milliseconds(50)...(.milliseconds(50))) }
            _ = try await one.container.move("f", to: "f 1")
            while try !isSent(by: one) { cloud.simulation.use { $0.network.run(for: .milliseconds(1)) } }
            one.setOffline(true)
            cloud.simulation.use {
                $0.network.run(for: .seconds(30))
                $0.network.faults = .none
            }
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/f 1"])
            _ = try await two.container.move("f 1", to: "g")
            try await two.settle()
            // What comes first once it is back takes all that it may ask for.
            func isInFlight() async throws -> Bool {
                try await one.session.engine.perform { engine, completion in
                    completion(.success(!engine.scopes.allSatisfy(\.sync.outbox.inFlight.isEmpty)))
                }
            }
            while try await isInFlight() { cloud.simulation.use { $0.network.run(for: .milliseconds(10)) } }
            one.setOffline(false)
            one.session.engine.execute { engine in
                for _ in 0..<600 {
                    engine.call(
                        .documents, WireListUsage(), as: WireListUsageReply.self, app: ContainerCloud.app
                    ) { _, _ in }
                }
                for scope in engine.scopes { scope.synchronize() }
            }
            var refusal: CloudError.Code?
            for _ in 0..<10_000 where refusal == nil {
                cloud.simulation.use { $0.network.run(for: .milliseconds(10)) }
                refusal = try one.container.handle.read { try $0.rows.operations().first?.error?.code }
                if refusal != .requestRateLimited { refusal = nil }
            }
            #expect(refusal == .requestRateLimited)
            for device in [one, two, one] { try await device.settle() }
            #expect(try await one.paths() == ["/Documents/g"])
            #expect(try await two.paths() == ["/Documents/g"])
        }
    }

    @Test(arguments: Change.allCases, [false, true])
    func whatIsDoneAfterALostReplyComesAfterIt(_ kind: Change, isRestarted: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(cloud.root + "/one"), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "f")
            _ = try await one.container.makeFolder(at: "g")
            if kind == .restore { _ = try await one.container.trash(["f"]) }
            try await one.settle()
            try await two.settle()
            let before = try await sight(two)
            cloud.simulation.use { $0.network.faults = Faults(latency: .milliseconds(50)...(.milliseconds(50))) }
            try await change(kind, 1, one.container)
            // What is on its way arrives, and is answered to nobody.
            var steps = 0
            while try !isSent(by: one) {
                cloud.simulation.use { $0.network.run(for: .milliseconds(1)) }
                steps += 1
                try #require(steps < 10_000)
            }
            one.setOffline(true)
            cloud.simulation.use { $0.network.run(for: .seconds(5)) }
            #expect(try await one.container.scope.status().pending.count == 1)
            #expect(try await sight(two) != before)
            try await change(kind, 2, one.container)
            var device = one
            if isRestarted {
                one.session.close()
                device = try await cloud.open(cloud.root + "/one")
            }
            let expected = try await sight(device)
            cloud.simulation.use { $0.network.faults = .none }
            device.setOffline(false)
            for _ in 0..<2 {
                try await device.settle()
                try await two.settle()
            }
            #expect(try await sight(device) == expected)
            #expect(try await sight(two) == expected)
            #expect(try await device.container.scope.status().refused.isEmpty)
        }
    }
}
