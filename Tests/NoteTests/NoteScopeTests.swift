import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

import class Foundation.FileManager
import func Foundation.NSTemporaryDirectory
import struct Foundation.UUID

@testable import NephosKit

/// What a command line says of anything that a device keeps in step, it says of notes as of a key-value store: by the
/// face that all have.
@Suite struct NoteScopeTests {
    /// A device that keeps notes besides key-value stores.
    private func withSession(_ body: (Session, Simulation) async throws -> Void) async throws {
        let simulation = try Simulation(waitingPassesTime: true) {
            let cloud = try TestCloud(seed: 1, factories: [.records: { _ in NotesService() }])
            var app = WireApp()
            app.appID = NotesKind.app.rawValue
            app.containerIds = [NotesKind.app.rawValue]
            try cloud.createApp(app)
            return cloud
        }
        defer { simulation.close() }
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        var options = simulation.makeOptions(of: "device")
        let onMade = options.onMade
        options.onMade = { engine in
            engine.kinds = engine.kinds.filter { $0.service != .records } + [NotesKind()]
            onMade?(engine)
        }
        let session = try await Session.open(
            home: URL(fileURLWithPath: home), transport: simulation.transport(of: "device"), options: options)
        defer { session.close() }
        try await session.signIn(
            connection: simulation.use { try $0.connection.description }, account: TestCloud.accountName,
            password: TestCloud.password)
        try await body(session, simulation)
    }

    private func set(_ name: ItemName, _ text: String, in session: Session) async throws {
        try await session.engine.perform { engine, completion in
            completion(
                Result { () throws(CloudError) in
                    let driver = try engine.scope(ScopeID(app: NotesKind.app, service: .records))
                    guard let model = driver.model as? NotesModel else { return }
                    try driver.write { try model.append(Note(name: name, text: [UInt8](text.utf8)), in: $0) }
                    driver.push()
                })
        }
    }

    @Test func aHomeNamesAllThatItKeepsInStep() async throws {
        try await withSession { session, _ in
            let scopes = try await session.scopes()
            #expect(scopes.map(\.id.service) == [.records, .keyValue])
            #expect(scopes.map(\.id.app) == [NotesKind.app, try session.account?.defaultApp])
            let error = await #expect(throws: CloudError.self) {
                try await session.scope(ScopeID(app: NotesKind.app, service: .documents))
            }
            #expect(error?.code == .unknownItem)
        }
    }

    @Test func bothSayWhereTheyStandAndProveIt() async throws {
        try await withSession { session, _ in
            try session.keyValueStore().set("here", forKey: "k")
            let scopes = try await session.scopes()
            try await scopes[0].waitUntilCurrent()
            try await set("note", "text", in: session)
            for scope in scopes {
                try await scope.waitUntilSent()
                try await scope.waitUntilCurrent()
                let status = try await scope.status()
                #expect(status.isInSync && status.isFollowing && status.followingProblem == nil, "\(scope.id)")
                let proof = try await scope.verify()
                #expect(proof.agrees && proof.token.sequence > 0, "\(scope.id)")
                #expect(try await scope.conflicts().isEmpty)
            }
        }
    }

    @Test func bothSayWhyAnythingWaits() async throws {
        try await withSession { session, simulation in
            let scopes = try await session.scopes()
            for scope in scopes { try await scope.waitUntilCurrent() }
            simulation.use { $0.network.setOffline("device", true) }
            try session.keyValueStore().set("here", forKey: "k")
            try await set("note", "text", in: session)
            for (scope, name) in zip(scopes, ["note", "k"] as [ItemName]) {
                let error = await #expect(throws: CloudError.self) {
                    try await scope.waitUntilSent(timeout: .seconds(30))
                }
                #expect(error?.details["reason"] != nil)
                let status = try await scope.status()
                #expect(!status.isInSync && status.pending.map(\.keys) == [[name]], "\(scope.id)")
                #expect(status.pending.first?.blocker == .network)
            }
        }
    }

    @Test func whatWaitsOfBothIsToldToWhoeverSignsOut() async throws {
        try await withSession { session, simulation in
            for scope in try await session.scopes() { try await scope.waitUntilCurrent() }
            simulation.use { $0.network.setOffline("device", true) }
            try session.keyValueStore().set("here", forKey: "k")
            try await set("note", "text", in: session)
            let unsent = try await session.unsentChanges()
            #expect(unsent.map(\.service) == [.keyValue, .records] && unsent.map(\.requestCount) == [1, 1])
            #expect(unsent.first?.items.map(\.name) == ["k"])
            let refused = await #expect(throws: CloudError.self) { try await session.signOut(timeout: .seconds(1)) }
            #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "2")
            try await session.signOut(keepsUnsent: true, timeout: .seconds(1))
            // Nobody's note is lost for that another account signs in.
            #expect(try await session.unsentChanges() == unsent)
            simulation.use { $0.network.setOffline("device", false) }
            try await session.signIn(
                connection: simulation.use { try $0.connection.description }, account: TestCloud.accountName,
                password: TestCloud.password)
            for scope in try await session.scopes() { try await scope.waitUntilSent() }
            #expect(try await session.unsentChanges().isEmpty)
        }
    }

    @Test func bothTellWhatTheServerRefusedAndOnlyOfTheirOwn() async throws {
        try await withSession { session, _ in
            let scopes = try await session.scopes()
            for scope in scopes { try await scope.waitUntilCurrent() }
            let (notes, keys) = (scopes[0].events, scopes[1].events)
            try await set("long", String(repeating: "x", count: NotesService.bytesMax + 1), in: session)
            var told: [ChangeNotification] = []
            try await scopes[0].waitUntilSent()
            for await event in notes {
                if case .change(let change) = event { told.append(change) }
                if told.last?.reason == .quotaViolationChange { break }
            }
            #expect(told.last?.changedKeys == ["long"])
            session.close()
            for await event in keys { if case .change(let change) = event { Issue.record("\(change)") } }
        }
    }

    @Test func whatAKeyHadBeforeIsAConflictThatSaysHowToGetItBack() async throws {
        try await withSession { session, simulation in
            let store = try session.keyValueStore()
            try await store.ready()
            for value in ["first", "second"] {
                try store.set(value, forKey: "k")
                try await store.waitUntilSent()
                // What stood for less is not kept.
                simulation.advance(by: .seconds(1))
            }
            let conflicts = try await store.scope.conflicts(of: "k", withHistory: true)
            let device = try session.account?.deviceID
            #expect(conflicts.map(\.content) == [.string("first")] && conflicts.map(\.outcome) == [.overwritten])
            #expect(conflicts.first?.recovery == "nephos kv set --home=\(session.home.path) --type=string k first")
            #expect(conflicts.first?.replacement == .content("second"))
            #expect(conflicts.first?.device == device && conflicts.first?.winner == device)
            #expect(try await store.scope.conflicts(of: "other", withHistory: true).isEmpty)
        }
    }
}
