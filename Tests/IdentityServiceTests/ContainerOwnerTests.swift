import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosIdentity

/// Whose a container's public databases are, and who administers them.
@Suite struct ContainerOwnerTests {
    private let house: IdentityHouse

    init() throws { house = try IdentityHouse() }

    private func createApp(_ id: String, _ containers: [String]) throws {
        var request = WireCreateApp()
        (request.app.appID, request.app.containerIds) = (id, containers)
        _ = try house.call(request, by: house.operatorKey, replying: WireCreateAppReply.self)
    }

    private func definition(of container: String) throws -> WireContainerDefinition {
        let reply: WireListContainersReply = try house.call(WireListContainers(), by: house.operatorKey)
        return try #require(reply.definitions.first { $0.containerID == container })
    }

    @discardableResult
    private func save(
        _ container: String, owner: String = "", administrators: [String]? = nil
    ) throws -> WireContainerDefinition {
        var request = WireSaveContainer()
        (request.definition.containerID, request.definition.ownerApp) = (container, owner)
        if let administrators { request.administrators.accountNames = administrators }
        return try house.call(request, by: house.operatorKey, replying: WireSaveContainerReply.self).definition
    }

    @Test func theFirstAppThatListsAContainerOwnsItUntilAnotherIsSaid() throws {
        try createApp("T.first", ["T.a"])
        try createApp("T.second", ["T.a", "T.b"])
        #expect(try definition(of: "T.a").ownerApp == "T.first" && definition(of: "T.b").ownerApp == "T.second")
        #expect(try definition(of: "default").ownerApp == "default")
        // What is said otherwise leaves it.
        #expect(try save("T.a").ownerApp == "T.first")
        #expect(try save("T.a", owner: "T.second").ownerApp == "T.second")
        #expect(code { try save("T.a", owner: "OTHER.app") } == .invalidArguments)
        #expect(code { try save("T.a", owner: "T.nobody") } == .missingEntitlement)
        var remove = WireRemoveApp()
        remove.appID = "T.second"
        _ = try house.call(remove, by: house.operatorKey, replying: WireRemoveAppReply.self)
        #expect(try definition(of: "T.a").ownerApp == "T.second")
        try house.restart()
        #expect(try definition(of: "T.a").ownerApp == "T.second")
        // Devices hear of it with their tokens.
        try house.createAccount("ann")
        let reply = try house.signIn("ann", by: house.newKey(), app: "T.first")
        #expect(reply.accessToken.app.containerOwners == ["T.second"])
    }

    @Test func administratorsAreAccountsThatTheOperatorNames() throws {
        try createApp("T.first", ["T.a"])
        let (ann, bert) = (try house.createAccount("ann"), try house.createAccount("bert"))
        let named = try save("T.a", administrators: ["ann", "bert"])
        #expect(
            named.administratorIds == [ann.rawValue, bert.rawValue] && named.administratorNames == ["ann", "bert"])
        #expect(try save("T.a").administratorNames == ["ann", "bert"])
        #expect(code { try save("T.a", administrators: ["nobody"]) } == .unknownItem)
        #expect(code { try save("T.a", administrators: Array(repeating: "ann", count: 17)) } == .limitExceeded)
        #expect(try save("T.a", administrators: []).administratorIds.isEmpty)
        #expect(code { try save("T.a", administrators: ["bert"]) } == nil)
        // The default app's container is no team's, and is administered all the same.
        try createApp("T.other", ["T.b"])
        #expect(try save("default", administrators: ["ann"]).administratorNames == ["ann"])
        #expect(try save("default", owner: "default").ownerApp == "default")
        #expect(code { try save("default", owner: "T.other") } == .invalidArguments)
        // The services hear of it.
        let told = house.events.flatMap(\.notification.changes).last { $0.item == "container/T.a" }
        let state = try WireContainerState(serializedBytes: #require(told).body)
        #expect(state.definition.administratorIds == [bert.rawValue] && state.definition.administratorNames.isEmpty)
        #expect(state.definition.ownerApp == "T.first")
    }
}
