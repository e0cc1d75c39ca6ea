import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// Somebody who can write records' database cannot give one record, or what one was, for another.
@Suite struct PlaceTests {
    enum Between: CaseIterable { case names, zones, containers, accounts }

    private let house: RecordHouse

    init() throws {
        house = try RecordHouse()
        try house.cloud.createAccount("guest")
    }

    /// A device and a record of its zone, twice, with as little as can be between them.
    private func places(_ between: Between) throws -> [(device: RecordDevice, name: String)] {
        let own = try house.device()
        let other = try house.device(account: between == .accounts ? "guest" : TestCloud.accountName)
        if between == .containers { other.container = "T.shared" }
        if between == .zones { other.zone = try other.makeZone("Work") }
        return [(own, "a"), (other, between == .names ? "b" : "a")]
    }

    private func scope(_ device: RecordDevice) -> [SQLValue] {
        [.text(device.mover.account.rawValue), .text("\(device.container)/\(device.zone)")]
    }

    /// Exchanges columns of two rows, each found by its arguments, while the service is away.
    private func exchange(_ select: SQL, _ update: SQL, _ rows: [[SQLValue]]) throws {
        house.cloud.crash(.records)
        try house.cloud.storage(of: .records).write { transaction in
            let sealed = try rows.map { row in try #require(try transaction.first(select, row) { $0.blob(0) }) }
            for (row, sealed) in zip(rows, sealed.reversed()) {
                #expect(try transaction.execute(update, row + [.blob(sealed)]) == 1)
            }
        }
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
    }

    /// The texts that a zone gives out.
    private func read(_ device: RecordDevice) throws -> [String: WireRecordField.OneOf_Value] {
        var request = WireReadChanges()
        request.scope = "\(device.container)/\(device.zone)"
        let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
        var texts: [String: WireRecordField.OneOf_Value] = [:]
        for change in reply.changes where !change.deleted {
            texts[change.item] = try WireRecord(serializedBytes: change.body)["text"]
        }
        return texts
    }

    @Test(arguments: Between.allCases) func aRecordThatWasMovedDoesNotOpen(_ between: Between) throws {
        let places = try places(between)
        for (number, place) in places.enumerated() { try place.device.save(place.name, ["text": .string("\(number)")]) }
        try places[0].device.save("c", ["text": .string("c")])
        let isPlace = "name = ?1 AND scope_id = (SELECT id FROM feed_scopes WHERE owner = ?2 AND path = ?3)"
        try exchange(
            SQL("SELECT body FROM feed_items WHERE \(isPlace)"),
            SQL("UPDATE feed_items SET body = ?4 WHERE \(isPlace)"),
            places.map { [.text($0.name)] + scope($0.device) })
        for place in places { #expect(try read(place.device)[place.name] == nil) }
        #expect(try read(places[0].device)["c"] == .string("c"))
        house.cloud.network.run(for: .seconds(1))
        #expect(try house.rows(of: "quarantined_items") == 2)
    }

    @Test(arguments: Between.allCases) func whatARecordWasAndWasMovedDoesNotOpen(_ between: Between) throws {
        let places = try places(between)
        for (number, place) in places.enumerated() {
            try place.device.save(place.name, ["text": .string("\(number)")])
            // By force, and not seen: so what was there is kept.
            let force = try house.device(account: between == .accounts && number == 1 ? "guest" : TestCloud.accountName)
            (force.container, force.zone) = (place.device.container, place.device.zone)
            try force.save(place.name, ["text": .string("new")], policy: .allKeys)
            if number == 0 {
                try place.device.save("c", ["text": .string("c")])
                try force.save("c", ["text": .string("new")], policy: .allKeys)
            }
        }
        func history(_ place: (device: RecordDevice, name: String)) throws -> [WireRecordHistoryEntry] {
            try place.device.history(of: place.name)
        }
        for (number, place) in places.enumerated() {
            #expect(try history(place).map { $0.record["text"] } == [.string("\(number)")])
        }
        func move() throws {
            let isPlace = "record = ?1 AND owner = ?2 AND zone = ?3"
            try exchange(
                SQL("SELECT sealed FROM record_history WHERE \(isPlace)"),
                SQL("UPDATE record_history SET sealed = ?4 WHERE \(isPlace)"),
                places.map { [.text($0.name)] + scope($0.device) })
        }
        try move()
        for place in places {
            let entries = try history(place)
            #expect(entries.map(\.damaged) == [true] && entries.map(\.hasRecord) == [false])
        }
        #expect(try history((places[0].device, "c")).map { $0.record["text"] } == [.string("c")])
        try move()
        for (number, place) in places.enumerated() {
            #expect(try history(place).map { $0.record["text"] } == [.string("\(number)")])
        }
    }

    /// Its number alone would not say whose it is.
    @Test func whatARecordWasIsNotGivenForAnothersByAnotherName() throws {
        let (here, there) = (try house.device(), try house.device())
        for name in ["a", "b"] {
            try here.save(name, ["text": .string(name)])
            try there.save(name, ["text": .string("new")], policy: .allKeys)
        }
        house.cloud.crash(.records)
        try house.cloud.storage(of: .records).write { transaction in
            let exchange = SQL("UPDATE record_history SET record = CASE record WHEN 'a' THEN 'b' ELSE 'a' END")
            let count = try transaction.execute(exchange, [])
            #expect(count == 2)
        }
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        #expect(try here.history().map(\.damaged) == [true, true])
    }
}
