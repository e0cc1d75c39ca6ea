import Foundation
import NephosCore

/// What a content is called that lost, once it is an item of its own: as other systems call it, so that people and
/// programs know it.
enum ConflictName {
    /// A version that is written beside its file: `name (DEVICE, 2026-01-31 18.05.00).txt`.
    static func makeVersion(of name: Data, device: String?, committed: Timestamp) -> Data {
        let owner = device.map(printable).flatMap { $0.isEmpty ? nil : "\($0), " } ?? ""
        return mark(name, " (\(owner)\(text(committed, "yyyy-MM-dd HH.mm.ss")))")
    }

    /// - Parameters:
    ///   - device: What the device is called that committed it; nil: nobody knows.
    ///   - number: 2 or more: which of several that would have one name.
    static func make(of name: Data, device: String?, committed: Timestamp, number: Int) -> Data {
        mark(plain(name), mark(device: device, committed: committed, number: number))
    }

    /// A file that gives way to another of its name: `name 2.txt`.
    static func make(of name: Data, number: Int) -> Data { mark(name, " \(number)") }

    /// Puts the mark before the extension.
    private static func mark(_ name: Data, _ text: String) -> Data {
        // A name that begins with its only dot has no extension.
        let dot = name.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > name.startIndex ? $0 : nil }
        let end = dot.flatMap { name.endIndex - $0 <= extensionMax ? $0 : nil } ?? name.endIndex
        let mark = Data(text.utf8)
        let stem = cut(name[..<end], to: DocumentLimits.nameBytesMax - mark.count - (name.endIndex - end))
        return stem + mark + name[end...]
    }

    private static let extensionMax = 32
    private static let deviceBytesMax = 64

    private static func mark(device: String?, committed: Timestamp, number: Int) -> String {
        let day = text(committed, "yyyy-MM-dd")
        let owner = device.map(printable).flatMap { $0.isEmpty ? nil : "\($0)'s " } ?? ""
        return " (\(owner)conflicted copy \(day)\(number > 1 ? " \(number)" : ""))"
    }

    private static func text(_ time: Timestamp, _ format: String) -> String {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.dateFormat = format
        return formatter.string(from: Date(timeIntervalSince1970: Double(time.milliseconds) / 1000))
    }

    /// The name without the mark of an earlier conflict: marks do not pile up.
    private static func plain(_ name: Data) -> Data {
        guard let text = String(validating: name, as: UTF8.self),
            let mark = text.firstMatch(of: /\ \([^()]*conflicted copy \d{4}-\d\d-\d\d(?: \d+)?\)/)
        else { return name }
        let plain = Data((text[..<mark.range.lowerBound] + text[mark.range.upperBound...]).utf8)
        return DocumentLimits.isName([UInt8](plain)) ? plain : name
    }

    /// What a name may have in it, and a terminal shows.
    private static func printable(_ device: String) -> String {
        let text = device.scalarsWithUnseen { scalars in
            String(String.UnicodeScalarView(scalars.filter { !$0.isUnseen && $0.scalar != "/" }.map(\.scalar)))
        }
        return String(decoding: cut(Data(text.utf8), to: deviceBytesMax), as: UTF8.self)
    }

    /// What does not fit is cut before a character.
    private static func cut(_ text: Data, to count: Int) -> Data {
        guard text.count > count else { return text }
        var end = text.startIndex + max(0, count)
        while end > text.startIndex, text[end] & 0xc0 == 0x80 { end -= 1 }
        return text[..<end]
    }
}

extension DocumentVersion {
    /// What a copy of it is called that is written beside its file.
    ///
    /// - Parameters:
    ///   - name: What the file is called.
    ///   - device: What the device is called that has committed it; nil: nobody knows.
    package func copyName(of name: Data, device: String?) -> Data {
        ConflictName.makeVersion(
            of: name, device: device,
            committed: committed ?? Timestamp(milliseconds: UInt64(max(0, modified.milliseconds)))
        )
    }
}
