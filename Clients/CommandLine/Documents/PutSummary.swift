import NephosCore
import NephosKit

/// What a put has done, as a person and `--json` are told.
struct PutSummary: Encodable {
    /// What was moved in the container since it was got or put.
    struct Move: Encodable {
        /// Where the file was to go.
        var place: String
        /// Where the item is, and the file went.
        var path: String
    }

    private enum CodingKeys: CodingKey {
        case new, changed, unchanged, outdated, conflicting, bytes, moved
    }

    private(set) var new = 0
    private(set) var changed = 0
    /// Nothing of these was sent; nor of those that are only newer in the container.
    private(set) var unchanged = 0
    private(set) var outdated: [String] = []
    private(set) var conflicting = 0
    /// Of the contents that are new, changed or in conflict.
    private(set) var bytes: UInt64 = 0
    private(set) var moved: [Move] = []
    /// The contents that the files have, by their items.
    private(set) var versions: [DocumentID: DocumentID] = [:]
    /// Items that are known to be in conflict before the server has answered.
    private(set) var known: [DocumentEntry] = []
    private var moves: [String: String] = [:]

    /// Whether there was anything to be sent.
    var isSent: Bool { new + changed + conflicting > 0 }
    private var count: Int { new + changed + unchanged + outdated.count + conflicting }

    mutating func add(_ item: DocumentEntry, _ put: PutDocument) {
        if let version = put.version { versions[put.item] = version }
        switch put.outcome {
        case .made: new += 1
        case .changed: changed += 1
        case .unchanged: unchanged += 1
        case .outdated: outdated.append(item.path)
        case .conflict:
            conflicting += 1
            known.append(item)
        }
        if [.made, .changed, .conflict].contains(put.outcome) { bytes = bytes.addingClamped(item.size) }
        if put.outcome != .made, item.path != put.place { add(Move(place: put.place, path: item.path)) }
    }

    /// What comes from no file.
    mutating func add(input item: DocumentEntry) {
        changed += 1
        bytes = bytes.addingClamped(item.size)
    }

    /// What only lies in a folder that was moved needs no word of its own.
    private mutating func add(_ move: Move) {
        moves[move.place] = move.path
        let (folder, name) = Self.divide(move.place)
        if let other = moves[folder], other + "/" + name == move.path { return }
        moved.append(move)
    }

    private static func divide(_ path: String) -> (folder: String, name: String) {
        let slash = path.lastIndex(of: "/") ?? path.startIndex
        return (String(path[..<slash]), String(path[slash...].dropFirst()))
    }

    /// What a person should know besides.
    var notes: [String] {
        moved.map {
            "moved in the container: \(inLine($0.place)) is \(inLine($0.path)) there, and was put there; the local file keeps its name"
        }
            + outdated.map {
                "newer in the container, and unchanged here: \(inLine($0)). Get it with: nephos docs get "
                    + ShellCommand.arguments([$0])
            }
    }

    func text(_ items: [DocumentEntry], _ only: PutDocument.Outcome?) -> String {
        if count == 1, items.count == 1 {
            let (path, size) = (inLine(items[0].path), describe(bytes: items[0].size))
            return switch only {
            case .unchanged: "Unchanged: \(path)."
            case .outdated: "Not put: \(path) is newer in the container, and the file is unchanged."
            default: "Put \(path) (\(size))."
            }
        }
        let parts = [
            (new, "new"), (changed, "changed"), (unchanged, "unchanged"), (outdated.count, "newer in the container"),
            (conflicting, "in conflict"),
        ].filter { $0.0 > 0 }.map { "\($0) \($1)" }
        let size = isSent ? " (\(describe(bytes: bytes)) to send)" : ""
        return "Put \(count) items: \(listed(parts))\(size)."
    }
}
