import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What becomes of documents when somebody signs out, or another account signs in.
@Suite struct DocumentAccountTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func signIn(_ device: ContainerCloud.Device, as account: String, in cloud: ContainerCloud) async throws {
        let connection = try cloud.simulation.use { try $0.connection }.description
        try await device.session.signIn(
            connection: ConnectionString(connection), account: account, password: TestCloud.password,
            deviceName: device.name)
    }

    @Test func whatWaitsIsListedBeforeASignOutWithTheCommandThatSendsIt() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let other = try await one.openOther()
            #expect(try await one.session.unsentChanges().isEmpty)
            one.setOffline(true)
            try await one.container.put(bytes(300_000, seed: 1), at: "f/x", makesFolders: true)
            try await other.put(Data("y".utf8), at: "y")
            try one.session.keyValueStore(app: ContainerCloud.app).set(1, forKey: "k")
            let changes = try await one.session.unsentChanges()
            #expect(changes.map(\.service) == [.documents, .documents, .keyValue])
            #expect(changes.allSatisfy { $0.app == ContainerCloud.app })
            let first = try #require(changes.first)
            #expect(first.name == ContainerCloud.container && first.itemCount == 2 && first.bytes == 300_000)
            #expect(Set(first.items.map(\.name)) == ["/Documents/f", "/Documents/f/x"])
            #expect(first.items.first { $0.name == "/Documents/f/x" }?.bytes == 300_000)
            #expect(changes[1].items.map(\.name) == ["/Documents/y"] && changes[2].items.map(\.name) == ["k"])

            let refused = await #expect(throws: CloudError.self) { try await one.session.signOut() }
            #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "3")
            let commands = try #require(refused?.details["send"]).components(separatedBy: "; ")
            #expect(commands.count == 3)
            #expect(commands[0].hasPrefix("nephos docs status") && !commands[0].contains("--container"))
            #expect(commands[1].contains("--container=\(ContainerCloud.container).other"))
            #expect(commands[2].hasPrefix("nephos kv sync"))
            #expect(refused?.details["apps"]?.contains("\(ContainerCloud.app) (documents): 1") == true)
        }
    }

    @Test func whatWasNeverSentSurvivesASignOutAndIsSentOnceItsAccountIsBack() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            let (content, before) = (bytes(3_000_000, seed: 2), bytes(300_000, seed: 3))
            try await one.container.put(before, at: "old")
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            try await one.container.put(content, at: "f/x", makesFolders: true)
            try await one.container.put(Data("short".utf8), at: "old")
            try await one.session.signOut(keepsUnsent: true)
            one.setOffline(false)
            // Nobody reads or changes it meanwhile, and it is not another account's to lose.
            let read = await #expect(throws: CloudError.self) { try await one.container.read("f/x") }
            #expect(read?.code == .notSignedIn)
            let refused = await #expect(throws: CloudError.self) { try await signIn(one, as: "other", in: cloud) }
            // With the word that a long content is on its way.
            #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "3")
            #expect(refused?.details["apps"] == "\(ContainerCloud.app) (documents): 3")
            cloud.simulation.pass(.seconds(600))
            let changes = try await one.session.unsentChanges()
            #expect(changes.map(\.bytes) == [3_000_000])

            try await signIn(one, as: TestCloud.accountName, in: cloud)
            let again = try await one.session.container(app: ContainerCloud.app)
            try await again.scope.waitUntilSent(timeout: .seconds(60))
            try await two.settle()
            #expect(try await two.container.read("f/x") == content)
            #expect(try await two.text("old") == "short")
            #expect(try await two.container.item(at: "old")?.conflictCount == 0)
            #expect(try await one.session.unsentChanges().isEmpty)
            // Now nothing is in the way.
            try await one.session.signOut()
            try await signIn(one, as: "other", in: cloud)
            #expect(try await one.session.container(app: ContainerCloud.app).scope.status().pending.isEmpty)
        }
    }

    @Test func aContentThatWasRefusedIsNotGivenUpBecauseAnotherSignsIn() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            try cloud.setPlan(bytes: 40_000)
            try await one.container.put(bytes(300_000, seed: 5), at: "large")
            try await one.container.scope.waitUntilSent(timeout: .seconds(60))
            #expect(try await one.container.scope.status().refused.count == 1)
            try await one.session.signOut()
            let refused = await #expect(throws: CloudError.self) { try await signIn(one, as: "other", in: cloud) }
            #expect(refused?.code == .constraintViolation && refused?.details["refused"] == "1")
            #expect(try one.session.account == nil)
        }
    }

    @Test func aStreamEndsWithTheReasonWhenTheAccountChanges() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let content = bytes(4 * DocumentStream.pieceBytes, seed: 4)
            try await one.container.put(content, at: "x")
            for device in [one, two] { try await device.settle() }
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            // Of what has to be fetched, and of what is here.
            for device in [two, one] {
                let stream = try await device.container.streams.read("x").makeAsyncIterator()
                #expect(try await stream.next()?.count == DocumentStream.pieceBytes)
                try await device.session.signOut()
                if device.name == one.name { try await signIn(device, as: "other", in: cloud) }
                var count = 1
                let error = await #expect(throws: CloudError.self) {
                    while try await stream.next() != nil { count += 1 }
                }
                #expect(error?.code == .notSignedIn, "\(String(describing: error))")
                // One more may have been on its way.
                #expect(count <= 2)
            }
        }
    }
}
