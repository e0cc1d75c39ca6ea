internal import Foundation
internal import NephosCore
internal import NephosKit
internal import NephosPropertyLists
internal import NephosWire

/// The calls of the page of key-values: those of the app that signed in.
enum KeyCalls {
    /// Characters of a value in a list.
    private static let shownMax = 200
    private static let pageMax = 1000
    /// How long a change may take to get to the server.
    private static let patience: Duration = .seconds(15)

    static let methods: [String: ConsoleMethod] = [
        "keys.list": ConsoleMethod(list), "keys.get": ConsoleMethod(get), "keys.set": ConsoleMethod(set),
        "keys.delete": ConsoleMethod(delete), "keys.history": ConsoleMethod(history),
    ]

    private struct List: Decodable {
        var after: String?
        var limit: Int?
    }

    private struct Listed: Encodable {
        var keys: [KeyRow]
        var next: String?
    }

    private static func list(_ user: WebUser, _ arguments: List) async throws -> Listed {
        let items = try await store(user).items().filter { $0.value.value != nil }
        let limit = min(max(arguments.limit ?? pageMax, 1), pageMax)
        var names = items.keys.sorted()
        if let after = arguments.after { names.removeAll { $0 <= ItemName(after) } }
        let page = names.prefix(limit)
        return Listed(
            keys: page.compactMap { name in
                items[name].flatMap { KeyRow($0, shownMax: shownMax) }
            }, next: names.count > limit ? page.last?.rawValue : nil)
    }

    private struct OfKey: Decodable {
        var key: String
    }

    private struct Key: Encodable {
        var key: KeyRow
    }

    private static func get(_ user: WebUser, _ arguments: OfKey) async throws -> Key {
        try key(arguments.key, try await store(user))
    }

    private static func key(_ key: String, _ store: KeyValueStore) throws -> Key {
        guard let row = try item(key, store).flatMap({ KeyRow($0) }) else {
            throw CloudError(.unknownItem, "There is no such key.", details: ["key": key])
        }
        return Key(key: row)
    }

    /// The key's item, under the store's own name: equal strings may differ in their bytes. One with a value comes before a
    /// deleted one, the newest first.
    private static func item(_ key: String, _ store: KeyValueStore) throws -> KeyValueItem? {
        try store.items().values.filter { $0.key.rawValue == key }.max { left, right in
            (left.value != nil) == (right.value != nil) ? right.wins(over: left) : right.value != nil
        }
    }

    private struct Set: Decodable {
        var key: String
        var type: String
        var value: String
    }

    private static func set(_ user: WebUser, _ arguments: Set) async throws -> Key {
        let value = try TypedText(type: arguments.type, text: arguments.value).value
        let store = try await store(user)
        try store.set(value, forKey: arguments.key)
        if !user.isOwn { try await waitUntilSent(arguments.key, store) }
        return try key(arguments.key, store)
    }

    private static func delete(_ user: WebUser, _ arguments: OfKey) async throws -> ConsoleDone {
        let store = try await store(user)
        try store.set(nil, forKey: arguments.key)
        if !user.isOwn { try await waitUntilSent(arguments.key, store) }
        return ConsoleDone()
    }

    private struct History: Encodable {
        struct Version: Encodable {
            /// When it was written.
            var time: Int64
            /// The device that wrote it.
            var deviceName: String?
            /// Nil: the key did not exist.
            var type: String?
            var value: String?
            /// Another device replaced it without having seen it.
            var isConflict: Bool?
            var isCurrent: Bool?

            init(_ item: KeyValueItem, _ names: [DeviceID: String]) {
                let typed = item.value.map { TypedText($0) }
                (time, deviceName) = (Int64(item.timestamp.time.milliseconds), names[item.deviceID])
                (type, value) = (typed?.type, typed?.text)
            }
        }
        var versions: [Version]
    }

    private static func history(_ user: WebUser, _ arguments: OfKey) async throws -> History {
        let store = try await store(user)
        let entries = try await store.history(forKey: arguments.key, limit: 100)
        let names = await user.deviceNames()
        let current = try item(arguments.key, store).map { item in
            var version = History.Version(item, names)
            version.isCurrent = true
            return version
        }
        return History(
            versions: [current].compactMap { $0 }
                + entries.map { entry in
                    var version = History.Version(entry.item, names)
                    version.isConflict = entry.lostConflict ? true : nil
                    return version
                })
    }

    private static func store(_ user: WebUser) async throws -> KeyValueStore {
        let store = try user.session.keyValueStore()
        try await store.ready()
        return store
    }

    /// - Throws: ``CloudError``: what the server rejected the change with. It is not kept.
    private static func waitUntilSent(_ key: String, _ store: KeyValueStore) async throws {
        try await store.waitUntilSent(timeout: patience, isImpatient: true)
        let rejected = try await store.status().refused.filter { $0.key.rawValue == key }
        guard let first = rejected.first else { return }
        try store.dismissRefused(rejected.map(\.key))
        throw first.error
    }
}

/// A key as the pages have it.
struct KeyRow: Encodable {
    var name: String
    var type: String
    var value: String
    /// Bytes of data.
    var size: Int?
    /// The value goes on.
    var isCut: Bool?
    var modified: Int64

    /// - Returns: Nil: the key was deleted.
    init?(_ item: KeyValueItem, shownMax: Int = .max) {
        guard let typed = item.value.map({ TypedText($0) }) else { return nil }
        (name, type, modified) = (item.key.rawValue, typed.type, Int64(item.timestamp.time.milliseconds))
        if type == "data" { size = Data(base64Encoded: typed.text)?.count }
        isCut = typed.text.utf8.count > shownMax ? true : nil
        value = isCut == nil ? typed.text : String(typed.text.prefix(shownMax))
    }
}

/// A value of an app as a text and its type, since JavaScript has no 64-bit numbers.
struct TypedText {
    var type: String
    var text: String

    init(type: String, text: String) { (self.type, self.text) = (type, text) }

    init(_ value: PropertyValue) {
        switch value {
        case .boolean(let value): self.init(type: "boolean", text: "\(value)")
        case .integer(let value): self.init(type: "integer", text: "\(value)")
        case .real(let value): self.init(type: "real", text: "\(value)")
        case .string(let value): self.init(type: "string", text: value)
        case .date(let value): self.init(type: "date", text: PropertyDate.text(of: value))
        case .data(let value): self.init(type: "data", text: value.base64EncodedString())
        case .array: self.init(type: "array", text: value.typedJSON)
        case .dictionary: self.init(type: "dictionary", text: value.typedJSON)
        }
    }

    /// - Throws: ``CloudError`` `.invalidArguments` when the text is not of the type.
    var value: PropertyValue {
        get throws(CloudError) {
            let found: PropertyValue? =
                switch type {
                case "boolean": ["true": true, "false": false][text].map { .boolean($0) }
                case "integer": Int64(text).map { .integer($0) }
                case "real": Double(text).flatMap { $0.isFinite ? .real($0) : nil }
                case "string": .string(text)
                case "date": PropertyDate.date(text).map { .date($0) }
                case "data": Data(base64Encoded: text).map { .data($0) }
                case "array", "dictionary": try PropertyValue(json: text)
                default: nil
                }
            guard let found, TypedText(found).type == type else {
                throw CloudError(.invalidArguments, "The value is not of this type.", details: ["type": type])
            }
            return found
        }
    }
}
