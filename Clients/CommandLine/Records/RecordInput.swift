import ArgumentParser
import Foundation
import NephosCore
import NephosKit

/// A field and its value, as they are typed: `title=one`.
struct FieldArgument: ExpressibleByArgument, Sendable {
    var name: String
    var text: String

    init?(argument: String) {
        guard let end = argument.firstIndex(of: "="), end > argument.startIndex else { return nil }
        name = String(argument[..<end])
        text = String(argument[argument.index(after: end)...])
    }
}

/// Fields of a record with their types, as options say them.
struct FieldOptions: ParsableArguments {
    @Argument(
        help:
            "Fields, such as title=one. Numbers and JSON (as nephos records export writes it) are recognized if they print as you typed them; true is 1, false is 0, [] is an empty list of texts. All other values are text."
    )
    var fields: [FieldArgument] = []
    @Option(name: .long, help: "A text field, even if it looks like a number: zip=01234.") var string: [FieldArgument] =
        []
    @Option(name: .long, help: "An integer field.") var integer: [FieldArgument] = []
    @Option(name: .long, help: "A real number field: size=1.") var real: [FieldArgument] = []
    @Option(name: .long, help: "A date field: due=2026-01-31T12:00:00Z.") var date: [FieldArgument] = []
    @Option(name: .long, help: "A data field, in base64.") var data: [FieldArgument] = []
    @Option(name: .long, help: "A field with a reference to a record of the zone, by its name.") var reference:
        [FieldArgument] = []
    @Option(name: .long, help: "A field with a file as its asset: photo=FILE.") var asset: [FieldArgument] = []

    var isEmpty: Bool { all.isEmpty }
    var hasAssets: Bool { !asset.isEmpty }

    private var all: [FieldArgument] { fields + string + integer + real + date + data + reference + asset }

    /// - Throws: ``CloudError`` `.invalidArguments`: a field twice, or of another type than is said.
    func values() async throws(CloudError) -> [String: RecordValue] {
        var values: [String: RecordValue] = [:]
        var assets: [String: RecordAsset] = [:]
        for argument in asset where assets[argument.text] == nil {
            assets[argument.text] = try await RecordAsset(contentsOf: LocalPath(argument.text))
        }
        func add(
            _ arguments: [FieldArgument], _ type: String, _ make: (String) -> RecordValue?
        ) throws(CloudError) {
            for argument in arguments {
                guard RecordLimits.isKey(argument.name) else {
                    throw CloudError(
                        .invalidArguments,
                        "A field is called by a letter, then letters, digits and underscores; \(RecordLimits.nameBytesMax) at most.",
                        details: ["field": argument.name])
                }
                guard let value = make(argument.text) else {
                    throw CloudError(
                        .invalidArguments, "A field's value is not of the type that the option says.",
                        details: ["field": argument.name, "type": type])
                }
                guard values.updateValue(value, forKey: argument.name) == nil else {
                    throw CloudError(
                        .invalidArguments, "A field is there twice. Name it once.",
                        details: ["field": argument.name])
                }
            }
        }
        try add(fields, "auto") { Self.guess($0) }
        try add(string, "string") { .string($0) }
        try add(integer, "integer") { Int64($0).map { .integer($0) } }
        try add(real, "real") { Double($0).map { .real($0) } }
        try add(date, "date") { RecordDate($0).map { .date($0) } }
        try add(data, "data") { Data(base64Encoded: $0).map { .data($0) } }
        try add(reference, "reference") { .reference(RecordReference($0)) }
        try add(asset, "asset") { text in assets[text].map { .asset($0) } }
        return values
    }

    /// What prints back as it was typed; anything else is a text, and stays one.
    private static func guess(_ text: String) -> RecordValue {
        if let value = Int64(text), String(value) == text { return .integer(value) }
        if let value = Double(text), value.isFinite, value.description == text { return .real(value) }
        // As an app's booleans are kept.
        if text == "true" || text == "false" { return .integer(text == "true" ? 1 : 0) }
        // An empty list does not say of what; --json-line has the others.
        if text == "[]" { return .strings([]) }
        if let first = text.utf8.first, first == UInt8(ascii: "[") || first == UInt8(ascii: "{"),
            let value = try? RecordValue(json: text), value.json == text
        {
            return value
        }
        return .string(text)
    }
}

/// What becomes of a save where others have saved the record since, as it is typed.
enum PolicyArgument: String, ExpressibleByArgument, CaseIterable {
    case unchanged
    case changedKeys = "changed-keys"
    case allKeys = "all-keys"

    var policy: RecordSavePolicy {
        switch self {
        case .unchanged: .ifServerRecordUnchanged
        case .changedKeys: .changedKeys
        case .allKeys: .allKeys
        }
    }
}

/// Which records are meant, as options say it.
struct QueryOptions: ParsableArguments {
    @Option(name: .long, help: "Only records of this type (default: all).") var type: String?
    @Option(
        parsing: .unconditional,
        help:
            "Sort by fields, such as -_modificationDate,title[cd]. A minus reverses the order, [c] ignores case, [d] ignores accents (default: by name)."
    )
    var sort: String?

    /// - Parameter predicate: Its text; nil: all.
    /// - Throws: ``CloudError``; to a person ``ExitStatus/usage``, once the place in the text was shown.
    func query(_ predicate: String?, limit: Int? = nil, fields: [String]? = nil, _ output: OutputOptions) throws
        -> RecordQuery
    {
        var query = RecordQuery(type: type, limit: limit, desiredFields: fields.map { Set($0) })
        query.sort = try Self.sort(sort)
        guard let predicate else { return query }
        do throws(QueryPredicateError) { query.predicate = try QueryPredicate(parsing: predicate) } catch {
            guard !output.json else { throw error.cloudError }
            Standard.error("nephos: " + error.rendered(in: predicate))
            throw ExitStatus.usage
        }
        return query
    }

    private static func sort(_ text: String?) throws(CloudError) -> [RecordSort] {
        guard let text else { return [] }
        var sorts: [RecordSort] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let field = part.first == "-" || part.first == "+" ? part.dropFirst() : part
            let name = String(field.prefix { $0 != "[" })
            let letters = field.drop { $0 != "[" }
            guard FieldName(name) != nil, ["", "[c]", "[d]", "[cd]"].contains(letters) else {
                throw CloudError(
                    .invalidArguments, "Records cannot be put in order by this: it is no field.",
                    details: ["field": String(field)])
            }
            sorts.append(
                RecordSort(
                    name, ascending: part.first != "-", ignoresCase: letters.contains("c"),
                    ignoresAccents: letters.contains("d")))
        }
        return sorts
    }
}
