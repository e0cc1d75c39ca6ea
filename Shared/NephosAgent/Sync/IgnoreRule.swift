internal import Foundation
internal import NephosFiles

/// Files that stay on their device: by name for all folders, and by the patterns of a `.nephosignore` in the root.
///
/// Patterns have the syntax of gitignore(5), and its rule that an ignored file which is synced already stays synced.
struct IgnoreRule: Sendable {
    static let fileName = FileName(".nephosignore".utf8)
    /// Bytes of a file of patterns.
    static let fileSizeMax = 1 << 20
    private static let suffix = FileName(".nosync".utf8)
    private static let junk: Set<FileName> = [
        FileName(".DS_Store".utf8), FileName("Thumbs.db".utf8), FileName("desktop.ini".utf8),
    ]

    /// Whether a file is made by a system for itself. It goes with its folder.
    static func isJunk(_ name: FileName) -> Bool { junk.contains(name) }

    /// Whether a name is never synced, whatever the patterns are.
    static func ignores(_ name: FileName) -> Bool {
        name == RootFolder.ownName || name.suffix(suffix.count) == suffix[...] || junk.contains(name)
    }

    private struct Pattern {
        /// Names of the path, each for `fnmatch`; nil: any number of folders.
        var parts: [FileName?]
        var isException: Bool
        var isForFolders: Bool
    }

    private let patterns: [Pattern]
    var isEmpty: Bool { patterns.isEmpty }

    /// - Parameter text: The content of a `.nephosignore`, any bytes.
    init(_ text: [UInt8] = []) {
        patterns = text.split(whereSeparator: { $0 == UInt8(ascii: "\n") }).compactMap { Self.pattern(Array($0)) }
    }

    /// Whether the patterns ignore a file or folder, or a folder that it is in.
    ///
    /// - Parameter path: From the root on, its own name last.
    func ignores(_ path: [FileName], isFolder: Bool) -> Bool {
        guard !isEmpty else { return false }
        return path.indices.contains { ignoresAlone(path[...$0], isFolder: isFolder || $0 < path.count - 1) }
    }

    private func ignoresAlone(_ path: ArraySlice<FileName>, isFolder: Bool) -> Bool {
        // The last pattern that fits decides.
        let last = patterns.last { pattern in
            (isFolder || !pattern.isForFolders) && Self.matches(path, pattern.parts)
        }
        return last.map { !$0.isException } ?? false
    }

    // MARK: Patterns

    private static let slash = UInt8(ascii: "/")
    private static let backslash = UInt8(ascii: "\\")

    /// - Returns: Nil: the line is empty or a comment.
    private static func pattern(_ line: FileName) -> Pattern? {
        var line = line[...]
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        guard line.first != UInt8(ascii: "#") else { return nil }
        // Blanks at the end count only behind a backslash.
        while line.last == UInt8(ascii: " "), line.dropLast().last != backslash { line.removeLast() }
        let isException = line.first == UInt8(ascii: "!")
        if isException { line.removeFirst() }
        let isForFolders = line.last == slash
        if isForFolders { line.removeLast() }
        guard !line.isEmpty else { return nil }
        // A pattern with a slash begins at the root; another fits in every folder.
        let isAnywhere = !line.contains(slash)
        let names = line.split(separator: slash)
        guard !names.isEmpty else { return nil }
        let parts: [FileName?] = names.map { $0.elementsEqual("**".utf8) ? nil : FileName($0) }
        // At the end ** stands for everything inside: one name or more.
        let inside: [FileName?] = parts.last == .some(nil) ? [FileName("*".utf8)] : []
        return Pattern(
            parts: (isAnywhere ? [nil] : []) + parts + inside, isException: isException, isForFolders: isForFolders)
    }

    /// When a name does not fit, only the last `**` takes one folder more, so the time is at most the product of both lengths.
    private static func matches(_ path: ArraySlice<FileName>, _ parts: [FileName?]) -> Bool {
        var (next, part) = (path.startIndex, 0)
        var retry: (next: Int, part: Int)?
        while next < path.endIndex {
            if part < parts.count, parts[part] == nil {
                retry = (next, part)
                part += 1
            } else if part < parts.count, let pattern = parts[part], matches(path[next], pattern) {
                (next, part) = (next + 1, part + 1)
            } else if let last = retry {
                retry = (last.next + 1, last.part)
                (next, part) = (last.next + 1, last.part + 1)
            } else {
                return false
            }
        }
        return parts[part...].allSatisfy { $0 == nil }
    }

    private static func matches(_ name: FileName, _ part: FileName) -> Bool {
        // A C string ends at the first NUL, which no name has.
        (part + [0]).withUnsafeBufferPointer { part in
            (name + [0]).withUnsafeBufferPointer { name in
                guard let part = part.baseAddress, let name = name.baseAddress else { return false }
                return part.withMemoryRebound(to: CChar.self, capacity: 1) { part in
                    name.withMemoryRebound(to: CChar.self, capacity: 1) { fnmatch(part, $0, 0) == 0 }
                }
            }
        }
    }
}

/// The patterns that hold in a folder, and the file that they were read from.
struct IgnoreFile {
    var rule = IgnoreRule()
    /// The file's stamp when the patterns were read; nil: there was none.
    var stamp: FileStamp?
    /// The stamp at the last look, and since when it is so.
    var seen: (stamp: FileStamp, time: ContinuousClock.Instant)?
    /// The patterns are not here yet, or cannot be read: nothing new is sent.
    var isAwaited = false
    /// When a file that was just written is read.
    var due: ContinuousClock.Instant?
}
