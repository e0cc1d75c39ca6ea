import Foundation
import NephosCore
import NephosKit

extension RecordValue {
    /// As a person reads it: texts, dates and names of records as they are, the rest as JSON.
    var text: String {
        switch self {
        case .string(let value): value
        case .date(let value): value.description
        case .reference(let value): value.record
        case .asset(let value): describe(bytes: value.length)
        case .assets(let values):
            "\(values.count) \(values.count == 1 ? "asset" : "assets") "
                + "(\(describe(bytes: values.reduce(0) { $0.addingClamped($1.length) })))"
        default: printableJSON(json)
        }
    }
}

extension Record {
    /// Its fields in one line.
    var fieldsLine: String {
        fields.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value.shortText)" }.joined(separator: ", ")
    }

    /// A field as a column shows it, also one of those that every record has; `-`: it has none.
    func text(of field: String) -> String {
        switch field {
        case "_recordName": id.name
        case "_parent": parent ?? "-"
        case "_creationDate": created?.timeText ?? "-"
        case "_modificationDate": modified?.timeText ?? "-"
        case "_creator": created?.account.rawValue ?? "-"
        case "_modifier": modified?.account.rawValue ?? "-"
        case "_changeTag": changeTag?.base64EncodedString() ?? "-"
        default: fields[field]?.shortText ?? "-"
        }
    }

    /// What a person should know of it besides.
    var notes: String {
        isPending ? "waits to be sent" : ""
    }

    /// As `--json` prints it: a line of `nephos records export`, with what the server says of it besides.
    var row: String {
        var text = String(RecordJSON.line(self).dropLast())
        if let changeTag { text += ",\"change_tag\":\"\(changeTag.base64EncodedString())\"" }
        if let created { text += ",\"created\":\(created.row)" }
        if let modified { text += ",\"modified\":\(modified.row)" }
        if isPending { text += ",\"pending\":true" }
        return printableJSON(text + "}")
    }

    /// All that there is to say, a line each.
    ///
    /// - Parameter devices: What devices are called, as far as that is known.
    func lines(_ devices: DeviceNames?) -> [String] {
        func line(_ name: String, _ value: String) -> String { "  \(pad(name))  \(value)" }
        let width = min(20, fields.keys.map(\.cellCount).max() ?? 0)
        func pad(_ name: String) -> String { name.padded(toCells: width) }
        var lines = ["\(inLine(id.description)) (\(inLine(type)))"]
        lines += fields.sorted { $0.key < $1.key }.map { line(inLine($0.key), inLine($0.value.text)) }
        if let parent { lines.append("  belongs to \(inLine(parent))") }
        if let modified {
            let device = devices.map { $0[modified.device] } ?? modified.device.rawValue
            // In a public database nobody is told of which device a save is.
            let by = modified.device.rawValue.isEmpty ? "" : " by \(inLine(device))"
            lines.append("  saved \(modified.timeText)\(by)")
        }
        if !notes.isEmpty { lines.append("  \(notes)") }
        return lines
    }
}

extension RecordValue {
    private static let shortMax = 40

    var shortText: String { inLine(text).cut(toCells: Self.shortMax) }
}

extension RecordStamp {
    fileprivate var row: String {
        "{\"time\":\"\(time)\",\"device\":\(RecordValue.string(device.rawValue).json),"
            + "\"app\":\(RecordValue.string(app.rawValue).json)}"
    }

    var timeText: String { time.text }
}

extension RecordDate {
    /// As people read it, in this machine's zone.
    var text: String { describe(self) }
}

/// Records as a command prints them.
enum RecordList {
    /// - Parameter columns: Fields that have a column each; none: all in one.
    static func print(
        _ records: [Record], _ output: OutputOptions, columns: [String] = [], empty: String
    ) throws {
        guard !output.json else {
            // One after the other: there may be many.
            try StandardOutput.write("[")
            for (index, record) in records.enumerated() {
                try StandardOutput.write((index == 0 ? "" : ",") + record.row)
            }
            return try StandardOutput.write("]\n")
        }
        guard !records.isEmpty else { return try StandardOutput.line(empty) }
        try printTable(records.map { row($0, columns) }, columns)
    }

    /// The same page by page; of a table only the lines are held.
    ///
    /// - Returns: How many there were.
    @discardableResult
    static func print(
        _ pages: RecordPages, _ output: OutputOptions, columns: [String] = [], empty: String
    ) async throws -> Int {
        var count = 0
        var rows: [[String]] = []
        for try await page in pages {
            for record in page {
                if output.json {
                    try StandardOutput.write((count == 0 ? "[" : ",") + record.row)
                } else {
                    rows.append(row(record, columns))
                }
                count += 1
            }
        }
        if output.json {
            try StandardOutput.write(count == 0 ? "[]\n" : "]\n")
        } else if count == 0 {
            try StandardOutput.line(empty)
        } else {
            try printTable(rows, columns)
        }
        return count
    }

    private static func row(_ record: Record, _ columns: [String]) -> [String] {
        [record.id.name, record.type]
            + (columns.isEmpty
                ? [record.fieldsLine]
                : columns.map { record.text(of: $0) })
            + [record.modified?.timeText ?? "-", record.notes]
    }

    private static func printTable(_ rows: [[String]], _ columns: [String]) throws {
        let heading = ["NAME", "TYPE"] + (columns.isEmpty ? ["FIELDS"] : columns) + ["SAVED", ""]
        try StandardOutput.line(table(heading, rows))
    }
}
