import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosDocuments

/// Somebody who can write documents' database cannot give one item, or one version, for another.
@Suite struct PlaceTests {
    private let house: ContainerHouse
    private let own: ContainerDevice
    private let other: ContainerDevice
    /// With the same ids where it is not they that differ: nothing else tells the two places apart.
    private let ids: (DocumentID, DocumentID)

    enum Between: CaseIterable { case items, containers, accounts }

    private init(_ between: Between) throws {
        house = try ContainerHouse()
        try house.cloud.createAccount("guest")
        own = try house.device()
        other = try house.device(account: between == .accounts ? "guest" : TestCloud.accountName)
        if between == .containers { other.container = "T.shared" }
        let id = ContainerDevice.makeID()
        ids = (id, between == .items ? ContainerDevice.makeID() : id)
    }

    init() throws { try self.init(.items) }

    private func place(_ device: ContainerDevice) -> ScopeName {
        ScopeName(device.mover.account, ItemName(device.container))
    }

    /// Exchanges what is sealed of two rows, each found by its arguments, while the service is away.
    private func exchange(_ select: SQL, _ update: SQL, _ places: [[SQLValue]]) throws {
        house.cloud.crash(.documents)
        try house.cloud.storage(of: .documents).write { transaction in
            let sealed = try places.map { place in
                try #require(try transaction.first(select, place) { $0.blob(0) })
            }
            for (place, sealed) in zip(places, sealed.reversed()) {
                #expect(try transaction.execute(update, place + [.blob(sealed)]) == 1)
            }
        }
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(1))
    }

    private func exchangeItems() throws {
        let isPlace = "name = ?1 AND scope_id = (SELECT id FROM feed_scopes WHERE owner = ?2 AND path = ?3)"
        try exchange(
            SQL("SELECT body FROM feed_items WHERE \(isPlace)"),
            SQL("UPDATE feed_items SET body = ?4 WHERE \(isPlace)"),
            [(own, ids.0), (other, ids.1)].map { device, id in
                [
                    .text(id.name.rawValue), .text(place(device).owner.rawValue),
                    .text(place(device).path.rawValue),
                ]
            })
    }

    /// The names that a container gives out.
    private func read(_ device: ContainerDevice) throws -> Set<String> {
        var request = WireReadChanges()
        request.scope = device.container
        let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
        let names = try reply.changes.filter { !$0.deleted }.map {
            String(decoding: try WireDocumentItem(serializedBytes: $0.body).name, as: UTF8.self)
        }
        return Set(names)
    }

    @Test(arguments: Between.allCases) func anItemThatWasMovedDoesNotOpen(_ between: Between) throws {
        let test = try PlaceTests(between)
        try test.checkItems()
    }

    private func checkItems() throws {
        try own.apply([.create(ids.0, "one", .inline("1"))])
        try other.apply([.create(ids.1, "two", .inline("2"))])
        try own.makeFile("three")
        try exchangeItems()
        let (here, there) = try (read(own), read(other))
        #expect(here.contains("three") && here.isDisjoint(with: ["one", "two"]))
        #expect(there.isDisjoint(with: ["one", "two"]))
        house.cloud.network.run(for: .seconds(1))
        let count = SQL("SELECT COUNT(*) FROM quarantined_items")
        #expect(try house.cloud.storage(of: .documents).write { try $0.first(count) { $0.integer(0) } } == 2)
    }

    @Test(arguments: Between.allCases) func aVersionThatWasMovedDoesNotOpen(_ between: Between) throws {
        let test = try PlaceTests(between)
        try test.checkVersions()
    }

    private func checkVersions() throws {
        let version = ContainerDevice.makeID()
        for (device, id, text) in [(own, ids.0, "one"), (other, ids.1, "two")] {
            try device.apply([.create(id, text, .inline(text, version: version))])
            let next = ContainerDevice.makeID()
            try device.apply([.replace(id, .inline("next", base: Data(version.bytes), version: next))])
            try device.apply([.replace(id, .inline("last", base: Data(next.bytes)))])
        }
        func texts(_ device: ContainerDevice, _ id: DocumentID) throws -> Set<String> {
            Set(try device.versions(of: id).map(\.text))
        }
        #expect(try texts(own, ids.0) == ["one", "next", "last"] && texts(other, ids.1) == ["two", "next", "last"])
        func exchangeVersions() throws {
            let isPlace = "version = ?1 AND item = ?2 AND owner = ?3 AND container = ?4"
            try exchange(
                SQL("SELECT sealed FROM document_versions WHERE \(isPlace)"),
                SQL("UPDATE document_versions SET sealed = ?5 WHERE \(isPlace)"),
                [(own, ids.0), (other, ids.1)].map { device, id in
                    [
                        .blob(version.bytes), .blob(id.bytes), .text(place(device).owner.rawValue),
                        .text(place(device).path.rawValue),
                    ]
                })
        }
        try exchangeVersions()
        #expect(try texts(own, ids.0) == ["next", "last"] && texts(other, ids.1) == ["next", "last"])
        try exchangeVersions()
        #expect(try texts(own, ids.0) == ["one", "next", "last"] && texts(other, ids.1) == ["two", "next", "last"])
    }

    @Test func aVersionIsNoOtherOfItsItem() throws {
        let versions = (0..<3).map { _ in ContainerDevice.makeID() }
        try own.apply([.create(ids.0, "a", .inline("0", version: versions[0]))])
        for number in 1..<3 {
            let base = Data(versions[number - 1].bytes)
            try own.apply([.replace(ids.0, .inline("\(number)", base: base, version: versions[number]))])
        }
        #expect(try Set(own.versions(of: ids.0).map(\.text)) == ["0", "1", "2"])
        try exchange(
            SQL("SELECT sealed FROM document_versions WHERE version = ?1"),
            SQL("UPDATE document_versions SET sealed = ?2 WHERE version = ?1"),
            versions[..<2].map { [.blob($0.bytes)] })
        #expect(try own.versions(of: ids.0).map(\.text) == ["2"])
    }
}
