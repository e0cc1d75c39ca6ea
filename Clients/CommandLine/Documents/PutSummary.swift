import NephosCore
import NephosKit

/// Counts of a put, for the person and for `--json`.
struct PutSummary: Encodable {
    /// What was moved in the container since it was got or put.
    struct Move: Encodable {
        /// Where the file was to go.
        var place: String
        /// Where the item is.
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
    /// Of the contents that are sent.
    private(set) var bytes: UInt64 = 0
    private(set) var moved: [Move] = []
    /// The contents that the files have, by their items.
    private(set) var versions: [DocumentID: DocumentID] = [:]
    /// Items that are known to be in conflict before the server has answered.
    private(set) var known: [DocumentEntry] = []

    /// Whether there was anything to be sent.
    private(set) var isSent = false
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
        if let sent = put.bytesSent {
            isSent = true
            bytes = bytes.addingClamped(sent)
        }
        let isChanged = put.bytesSent != nil || put.outcome == .conflict || put.outcome == .outdated
        if put.outcome != .made, isChanged, item.path != put.place {
            moved.append(Move(place: put.place, path: item.path))
        }
    }

    /// What comes from no file.
    mutating func add(input item: DocumentEntry) {
        changed += 1
        isSent = true
        bytes = bytes.addingClamped(item.size)
    }

    /// What a person should know besides.
    var notes: [String] {
        moved.map {
            "moved in the container: \(inLine($0.place)) is \(inLine($0.path)) there; the local file keeps its name"
        }
            + outdated.map {
                "newer in the container, and unchanged here: \(inLine($0)). Get it with: nephos docs get "
                    + ShellCommand.arguments([$0])
            }
    }

    func text(_ items: [DocumentEntry], _ only: PutDocument.Outcome?) -> String {
        if count == 1, items.count == 1 {
            let path = inLine(items[0].path)
            return switch only {
            case .unchanged: "Unchanged: \(path)."
            case .outdated: "Not put: \(path) is newer in the container, and the file is unchanged."
            case .conflict where !isSent:
                "Not put: \(path) is in conflict. Decide with: nephos docs resolve "
                    + ShellCommand.arguments([items[0].path])
            default: "Put \(path) (\(describe(bytes: bytes)))."
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
