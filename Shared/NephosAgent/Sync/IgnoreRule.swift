internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

/// Files that stay on their device: by name for all folders, and by the patterns of a `.nephosignore` in the root.
///
/// Patterns have the syntax of gitignore(5), and its rule that an ignored file which is synced already stays synced.
struct IgnoreRule: Sendable {
    static let fileName = FileName(".nephosignore".utf8)
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
            (isFolder || !pattern.isForFolders) && Self.matches(path, pattern.parts[...])
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
        let parts = names.map { $0.elementsEqual("**".utf8) ? nil : FileName($0) }
        return Pattern(
            parts: isAnywhere ? [nil] + parts : parts, isException: isException, isForFolders: isForFolders)
    }

    private static func matches(_ path: ArraySlice<FileName>, _ parts: ArraySlice<FileName?>) -> Bool {
        guard let part = parts.first else { return path.isEmpty }
        guard let part else {
            // At the end it stands for everything inside, elsewhere for any folders or none.
            guard parts.count > 1 else { return !path.isEmpty }
            return path.indices.contains { matches(path[$0...], parts.dropFirst()) }
        }
        guard let name = path.first, matches(name, part) else { return false }
        return matches(path.dropFirst(), parts.dropFirst())
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

// What stays on this device.
extension FolderSync {
    /// Reads the patterns again if their file has changed. Then everything is looked at again: what was ignored may not be
    /// any more.
    func readIgnorePatterns() throws(CloudError) {
        ignoreDue = nil
        let place = Place(folder: container.root, name: IgnoreRule.fileName)
        guard let facts = try? root.folder.facts(place.name) else {
            guard try read({ try $0.child(of: place.folder, named: place.name) }) == nil else {
                // Programs delete and write again: the patterns hold until the deletion is sent.
                if isIgnoreAwaited {
                    isIgnoreAwaited = false
                    scanAll()
                }
                return
            }
            // Another device's patterns are on their way. Before they are here, nothing new is sent.
            let wasAwaited = isIgnoreAwaited
            isIgnoreAwaited = try container.child(of: place.folder, named: Data(place.name))?.kind == .file
            if ignoreStamp != nil || wasAwaited && !isIgnoreAwaited { take(nil, IgnoreRule()) }
            return
        }
        let stamp = FileStamp(facts)
        guard ignoreStamp != stamp || isIgnoreAwaited else { return }
        // A program that saves it may have emptied it first.
        if ignoreSeen?.stamp != stamp { ignoreSeen = (stamp, .now) }
        let isOld = Date(timeIntervalSince1970: Double(facts.modified) / 1e9) < Date(timeIntervalSinceNow: -10)
        guard let seen = ignoreSeen, isOld || seen.time + LaterPlaces.calm <= .now else {
            isIgnoreAwaited = true
            ignoreDue = (ignoreSeen?.time ?? .now) + LaterPlaces.calm
            return
        }
        guard facts.kind == .file, let text = ignoreText else {
            block(place, "The patterns cannot be read, so new files are not sent. It must be a file that you can read.")
            return isIgnoreAwaited = true
        }
        isIgnoreAwaited = false
        take(stamp, IgnoreRule(text))
    }

    private func take(_ stamp: FileStamp?, _ rule: IgnoreRule) {
        (ignoreStamp, ignoreRule) = (stamp, rule)
        scanAll()
    }

    /// Nil: it cannot be read.
    private var ignoreText: [UInt8]? {
        guard let descriptor = try? root.folder.openFile(IgnoreRule.fileName) else { return nil }
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        do { return [UInt8](try file.read(upToCount: IgnoreRule.fileSizeMax) ?? Data()) } catch { return nil }
    }

    /// Whether a file or folder without an item is left alone.
    func isIgnored(_ place: Place, isFolder: Bool) throws(CloudError) -> Bool {
        if isIgnoreAwaited, place != Place(folder: container.root, name: IgnoreRule.fileName) { return true }
        guard !ignoreRule.isEmpty, let path = try read({ try $0.path(of: place.folder) }),
            ignoreRule.ignores(path + [place.name], isFolder: isFolder)
        else { return false }
        // What another device has put there all the same is synced.
        return try container.child(of: place.folder, named: Data(place.name)) == nil
    }

    /// Whether a folder has ignored files, and nothing else but junk. One that cannot be read may have others.
    func holdsOnlyIgnored(_ path: [FileName]) -> Bool {
        guard let folder = try? root.folder.folder(path), let names = try? folder.names() else { return false }
        let left = names.filter { !IgnoreRule.isJunk($0) }
        return !left.isEmpty
            && left.allSatisfy { name in
                if IgnoreRule.ignores(name) { return true }
                guard let isFolder = try? folder.facts(name).kind == .folder else { return false }
                return ignoreRule.ignores(path + [name], isFolder: isFolder)
                    || isFolder && holdsOnlyIgnored(path + [name])
            }
    }
}
