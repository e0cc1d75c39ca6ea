import ArgumentParser
import Foundation
import NephosCore
import NephosKit

/// What every command takes: how to print.
struct OutputOptions: ParsableArguments {
    @Flag(name: .long, help: "Print JSON: one document, or one object a line for continuous output.")
    var json = false

    /// Prints the value as JSON, or else the text.
    ///
    /// - Throws: ``OutputFailure`` when it could not be written.
    func print(_ value: some Encodable, text: @autoclosure () -> String) throws {
        try print(json: { try Self.encode(value) }, text: text())
    }

    /// The same for what holds values of a store, which keep their types.
    func print(_ value: PropertyValue, text: @autoclosure () -> String) throws {
        try print(json: { value.json }, text: text())
    }

    private func print(json makeJSON: () throws -> String, text: @autoclosure () -> String) throws {
        if json { return try StandardOutput.write(makeJSON() + "\n") }
        let text = text()
        if !text.isEmpty { try StandardOutput.line(text) }
    }

    /// One line of JSON, keys sorted.
    static func encode(_ value: some Encodable) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return printableJSON(String(decoding: try encoder.encode(value), as: UTF8.self))
    }
}

/// A duration as people say it: `250 ms`, `4.2 s`, `3 min`, `2 h`, `5 d`.
func describe(_ duration: Duration) -> String {
    let milliseconds = duration.milliseconds
    switch milliseconds {
    case ..<1000: return "\(milliseconds) ms"
    case ..<60_000: return String(format: "%.1f s", Double(milliseconds) / 1000)
    case ..<3_600_000: return "\(milliseconds / 60_000) min"
    case ..<172_800_000: return "\(milliseconds / 3_600_000) h"
    default: return "\(milliseconds / 86_400_000) d"
    }
}

/// A time as people read it, in this machine's zone.
func describe(_ time: Timestamp) -> String {
    describe(Date(timeIntervalSince1970: Double(time.milliseconds) / 1000))
}

/// The date of a file as people read it, in this machine's zone.
func describe(_ date: DocumentDate) -> String { describe(date.date) }

private func describe(_ date: Date) -> String {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.dateFormat = "yyyy-MM-dd HH:mm:ss"
    return formatter.string(from: date)
}

/// A size as people say it, in decimal units: `0 B`, `1.2 kB`, `5.0 GB`.
func describe(bytes: UInt64) -> String {
    var value = Double(bytes)
    guard value >= 1000 else { return "\(bytes) B" }
    var unit = ""
    for next in ["kB", "MB", "GB", "TB", "PB", "EB"] where value >= 999.95 {
        value /= 1000
        unit = next
    }
    return String(format: "%.1f %@", value, unit)
}

/// So many of something, as people say it: `1 record`, `2 records`.
func counted(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
    "\(number) \(number == 1 ? noun : plural ?? noun + "s")"
}

/// The first few of many names, and how many more there are.
func listed(_ names: [String]) -> String {
    let shownMax = 5
    // One more takes no more room than to say so.
    guard names.count > shownMax + 1 else { return names.joined(separator: ", ") }
    return names.prefix(shownMax).joined(separator: ", ") + " and \(names.count - shownMax) more"
}

/// How long ago, as people say it.
func describe(_ time: Timestamp, before now: Timestamp) -> String {
    let age = now.since(time)
    return age < .seconds(60) ? "just now" : describe(age) + " ago"
}
