import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosIdentity

/// What the operator may say of a container, and what is kept of it.
@Suite struct ContainerDefinitionTests {
    private func save(
        _ house: IdentityHouse, _ id: String, _ change: (inout WireContainerDefinition) -> Void = { _ in }
    ) throws -> WireContainerDefinition {
        var request = WireSaveContainer()
        request.definition.containerID = id
        change(&request.definition)
        return try house.call(request, by: house.operatorKey, replying: WireSaveContainerReply.self).definition
    }

    @Test func whatIsSaidTakesThePlaceOfWhatWasSaidBefore() throws {
        let house = try IdentityHouse()
        var app = WireCreateApp()
        app.app.appID = "T.notes"
        _ = try house.call(app, by: house.operatorKey, replying: WireCreateAppReply.self)
        let first = try save(house, "T.b") {
            ($0.containerClass, $0.names, $0.writerApp) = (.stream, .bytes, "T.notes")
        }
        let second = try save(house, "T.b")
        _ = try save(house, "T.a") { $0.containerClass = .backup }
        #expect(first.containerClass == .stream && first.names == .bytes && first.writerApp == "T.notes")
        #expect(second.containerClass == .documents && second.names == .bytes && second.writerApp.isEmpty)
        #expect(second.version > first.version)
        let listed: WireListContainersReply = try house.call(WireListContainers(), by: house.operatorKey)
        // With the default app's own, of which it is known whose it is.
        #expect(listed.definitions.map(\.containerID) == ["T.a", "T.b", "default"] && listed.definitions[1] == second)
    }

    /// Who changes a part of it says the rest as it was read.
    @Test func whatWasReadBeforeAnotherChangedItIsNotSavedOverThat() throws {
        let house = try IdentityHouse()
        let first = try save(house, "T.a") { $0.trashDays = 10 }
        let second = try save(house, "T.a") {
            $0 = first
            $0.versionDays = 20
        }
        expect(.serverRecordChanged) {
            _ = try save(house, "T.a") {
                $0 = first
                $0.trashDays = 11
            }
        }
        let third = try save(house, "T.a") {
            $0 = second
            $0.trashDays = 11
        }
        #expect(third.trashDays == 11 && third.versionDays == 20)
        // Nor is what somebody else has said first.
        var unread = WireSaveContainer()
        unread.definition.containerID = "T.a"
        unread.isFirst = true
        expect(.serverRecordChanged) {
            _ = try house.call(unread, by: house.operatorKey, replying: WireSaveContainerReply.self)
        }
        unread.definition.containerID = "T.b"
        _ = try house.call(unread, by: house.operatorKey, replying: WireSaveContainerReply.self)
    }

    @Test func whatCannotBeMeantIsRefused() throws {
        let house = try IdentityHouse()
        for id in ["", "defaults", "*", "T.", "t.small", "T.a/b"] {
            expect(.invalidArguments) { _ = try save(house, id) }
        }
        expect(.invalidArguments) { _ = try save(house, "T.a") { $0.writerApp = "OTHER.app" } }
        expect(.missingEntitlement) { _ = try save(house, "T.a") { $0.writerApp = "T.nobody" } }
        expect(.invalidArguments) { _ = try save(house, "T.a") { $0.containerClass = .UNRECOGNIZED(77) } }
        expect(.invalidArguments) { _ = try save(house, "T.a") { $0.names = .UNRECOGNIZED(77) } }
        let listed: WireListContainersReply = try house.call(WireListContainers(), by: house.operatorKey)
        #expect(listed.definitions.map(\.containerID) == ["default"])
    }

    private func expect(_ code: CloudError.Code, _ body: () throws -> Void) {
        do {
            try body()
            Issue.record("Nothing was thrown.")
        } catch { #expect((error as? CloudError)?.code == code, "\(error)") }
    }
}
