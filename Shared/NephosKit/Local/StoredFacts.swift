import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf
import Synchronization

/// A limits profile as a row keeps it.
enum StoredLimits {
    private struct Fields: Codable {
        var name: String
        var total: Int
        var value: Int
        var keys: Int
        var keyBytes: Int
    }

    static func encode(_ limits: KeyValueLimits) -> Data {
        let fields = Fields(
            name: limits.name, total: limits.totalBytesMax, value: limits.valueBytesMax, keys: limits.keyCountMax,
            keyBytes: limits.keyBytesMax)
        return (try? JSONEncoder().encode(fields)) ?? Data()
    }

    static func decode(_ data: Data) -> KeyValueLimits {
        guard let fields = try? JSONDecoder().decode(Fields.self, from: data) else { return .standard }
        var limits = KeyValueLimits.standard
        limits.name = fields.name
        limits.totalBytesMax = fields.total
        limits.valueBytesMax = fields.value
        limits.keyCountMax = fields.keys
        limits.keyBytesMax = fields.keyBytes
        return limits
    }
}

/// An error as a row keeps it.
enum StoredError {
    static func encode(_ error: CloudError) -> Data { (try? WireFailure(error).serializedBytes()) ?? Data() }
    static func decode(_ data: Data) -> CloudError? {
        (try? WireFailure(serializedBytes: data)).map { CloudError($0) }
    }
}

/// Single values of the home: the session, the clock.
struct Facts {
    let database: Database

    init(_ database: Database) { self.database = database }

    func value<Value: Decodable>(_ name: String, as type: Value.Type) throws -> Value? {
        let data = try Data.fetchOne(
            database.cachedStatement(sql: "SELECT value FROM facts WHERE name = ?1"), arguments: [name])
        return try data.map { try Self.decode($0, as: type, named: name) }
    }

    private static func decode<Value: Decodable>(
        _ data: Data, as type: Value.Type, named name: String
    ) throws(CloudError) -> Value {
        do { return try JSONDecoder().decode(type, from: data) } catch {
            throw LocalFailure.damagedRow(["row": name])
        }
    }

    func set(_ name: String, _ value: (some Encodable)?) throws {
        guard let value else {
            try database.execute(sql: "DELETE FROM facts WHERE name = ?", arguments: [name])
            return
        }
        try database.cachedStatement(
            sql: "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2"
        ).execute(arguments: [name, try JSONEncoder().encode(value)])
    }

    /// The home's hybrid clock. In rows for all processes: what any of them
    /// writes after another has seen something gets the greater timestamp.
    func withClock<Result>(_ body: (inout HybridClock) throws -> Result) throws -> Result {
        let given = try timestamp("clock")
        let seen = try timestamp("seen")
        var clock = HybridClock(given: given ?? .zero, seen: try seen ?? greatestHeld())
        let result = try body(&clock)
        if clock.given != given { try set("clock", clock.given) }
        if clock.seen != seen { try set("seen", clock.seen) }
        return result
    }

    /// The greatest timestamp that the server has shown.
    var seen: HybridTimestamp {
        get throws { try timestamp("seen") ?? greatestHeld() }
    }

    private func timestamp(_ name: String) throws -> HybridTimestamp? {
        try Int64.fetchOne(
            database.cachedStatement(sql: "SELECT CAST(value AS INTEGER) FROM facts WHERE name = ?1"),
            arguments: [name]
        ).map { HybridTimestamp(rawValue: UInt64(bitPattern: $0)) }
    }

    private func set(_ name: String, _ timestamp: HybridTimestamp) throws {
        try database.cachedStatement(
            sql: "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2"
        ).execute(arguments: [name, Int64(bitPattern: timestamp.rawValue)])
    }

    /// What a home has seen that has not kept it apart yet: the newest of what came from the server.
    private func greatestHeld() throws -> HybridTimestamp {
        let greatest = try Int64.fetchOne(
            database.cachedStatement(sql: "SELECT max(timestamp) FROM items WHERE account <> ''"))
        return HybridTimestamp(rawValue: UInt64(bitPattern: greatest ?? 0))
    }

    /// Every transaction looks at it, and it hardly ever changes.
    var session: SessionRecord? {
        get throws {
            let data = try Data.fetchOne(
                database.cachedStatement(sql: "SELECT value FROM facts WHERE name = 'session'"))
            guard let data else { return nil }
            if let last = Self.lastSession.withLock({ $0 }), last.data == data { return last.record }
            let record = try Self.decode(data, as: SessionRecord.self, named: "session")
            Self.lastSession.withLock { $0 = (data, record) }
            return record
        }
    }

    private static let lastSession = Mutex<(data: Data, record: SessionRecord)?>(nil)

    func setSession(_ session: SessionRecord?) throws { try set("session", session) }
}
