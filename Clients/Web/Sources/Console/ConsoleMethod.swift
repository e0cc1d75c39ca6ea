internal import Foundation
internal import NephosCore
internal import NephosKit

/// A call of the console's pages: `POST /api/NAME` with a JSON object, answered with another.
struct ConsoleMethod: Sendable {
    /// Bytes of a call.
    static let bodyBytesMax = 2 << 20

    let run: @Sendable (WebUser, Data) async throws -> Data

    /// - Parameter body: Throws ``CloudError``.
    init<Arguments: Decodable & SendableMetatype, Answer: Encodable & SendableMetatype>(
        _ body: @escaping @Sendable (WebUser, Arguments) async throws -> Answer
    ) {
        run = { user, data in try ConsoleJSON.encode(await body(user, ConsoleJSON.decode(data))) }
    }

    /// One without arguments.
    init<Answer: Encodable & SendableMetatype>(_ body: @escaping @Sendable (WebUser) async throws -> Answer) {
        run = { user, _ in try ConsoleJSON.encode(await body(user)) }
    }

    /// All of them, by name.
    static let all: [String: ConsoleMethod] =
        [
            FileCalls.methods, UploadCalls.methods, AccountCalls.methods, KeyCalls.methods, RecordCalls.methods,
            StateCalls.methods,
        ].reduce(into: [:]) { all, methods in all.merge(methods) { $1 } }
}

/// An answer that says nothing but that it is done.
struct ConsoleDone: Encodable {}

/// JSON as the pages have it. Times are milliseconds since 1970; 64-bit numbers of apps are texts.
enum ConsoleJSON {
    static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.withoutEscapingSlashes]
        return try encoder.encode(value)
    }

    /// - Throws: ``CloudError`` `.invalidArguments`.
    static func decode<Value: Decodable>(_ data: Data) throws(CloudError) -> Value {
        do { return try JSONDecoder().decode(Value.self, from: data) } catch {
            throw CloudError(.invalidArguments, "The call's JSON is not as the method has it.")
        }
    }

    /// - Throws: ``CloudError`` `.invalidArguments` where it is no item's id.
    static func id(_ text: String) throws(CloudError) -> DocumentID {
        guard let id = DocumentID(text) else {
            throw CloudError(.invalidArguments, "This is no item's id.", details: ["id": text])
        }
        return id
    }
}
