import Foundation
import NephosCore
import NephosKit

/// How versions of one file differ.
struct VersionDiff {
    /// One version beside another, as it is printed.
    struct Difference: Encodable {
        var path: String
        var first: String
        var second: String
        /// Whether both have the same bytes.
        var isEqual: Bool
        /// Why no lines are shown; nil: they are.
        var reason: String?
        /// With three lines around each that differs.
        var lines: [String]
        fileprivate var heading: [String]

        var text: String { (heading + lines + (reason.map { [$0] } ?? [])).joined(separator: "\n") }

        private enum CodingKeys: String, CodingKey { case path, first, second, isEqual = "equal", reason, lines }
    }

    /// Bytes of a text that is compared line by line, at most.
    private static let bytesMax: UInt64 = 4 << 20

    private let container: UbiquityContainer
    private let item: DocumentEntry
    private let timeout: Duration

    init(_ container: UbiquityContainer, _ item: DocumentEntry, timeout: Duration) {
        (self.container, self.item, self.timeout) = (container, item, timeout)
    }

    /// The versions that are compared, two by two.
    ///
    /// - Parameter named: Those that a person has named.
    /// - Throws: ``CloudError`` `.unknownItem`: there is no such version.
    func pairs(_ named: [DocumentID]) async throws -> [(DocumentVersion, DocumentVersion)] {
        let conflicts = try await container.conflicts.versions(of: item.id)
        guard let current = conflicts.first else {
            throw CloudError(.invalidArguments, "A folder has no versions.", details: ["path": item.path])
        }
        if named.isEmpty, conflicts.count > 1 { return conflicts.dropFirst().map { (current, $0) } }
        let all = try await container.versions.list(of: item.id, timeout: timeout)
        guard !named.isEmpty else {
            let before = all.first { $0.id == current.base } ?? all.first { $0.id != current.id }
            return before.map { [($0, current)] } ?? []
        }
        let found = try named.map { id in
            guard let version = (all + conflicts).first(where: { $0.id == id }) else {
                throw CloudError(
                    .unknownItem, "The file has no such version, or not any more. See: nephos docs versions",
                    details: ["path": item.path, "version": id.description])
            }
            return version
        }
        return [(found[0], found.count > 1 ? found[1] : current)]
    }

    func difference(
        of first: DocumentVersion, to second: DocumentVersion, _ names: DeviceNames
    ) async throws -> Difference {
        var difference = Difference(
            path: item.path, first: first.id.description, second: second.id.description, isEqual: false, lines: [],
            heading: [heading("---", first, names), heading("+++", second, names)])
        guard max(first.size, second.size) <= Self.bytesMax else {
            difference.reason = "They are too long to be compared here. Get both: nephos docs get --version-id"
            return difference
        }
        let old = try await container.read(item.id, version: first.id, timeout: timeout)
        let new = try await container.read(item.id, version: second.id, timeout: timeout)
        difference.isEqual = old == new
        guard old != new else {
            difference.reason = "Both have the same bytes."
            return difference
        }
        guard let before = TextLines(old), let after = TextLines(new) else {
            difference.reason = "They differ, and are no texts."
            return difference
        }
        if let lines = before.difference(to: after) {
            difference.lines = lines
            if lines.isEmpty { difference.reason = "They differ in the end of the last line alone." }
        } else {
            difference.reason = "Too many lines differ to show them. Get both: nephos docs get --version-id"
        }
        return difference
    }

    private func heading(_ mark: String, _ version: DocumentVersion, _ names: DeviceNames) -> String {
        let device = version.device.map { " by \(inLine(names[$0]))" } ?? ""
        let time = version.committed.map { " \(describe($0))" } ?? ""
        return "\(mark) \(inLine(item.path)) \(version.id)\(time)\(device) (\(describe(bytes: version.size)))"
    }
}

/// The lines of a text.
struct TextLines {
    /// Lines that are compared once what both texts begin and end with is left out, at most: the time and room that it takes
    /// grows with the square of what differs.
    private static let countMax = 2000
    /// Lines that are shown around each that differs.
    private static let contextCount = 3

    private enum Line { case same(Data), removed(Data), added(Data) }

    private let lines: [Data]

    /// - Returns: Nil: it is no text.
    init?(_ data: Data) {
        guard !data.contains(0), String(validating: data, as: UTF8.self) != nil else { return nil }
        lines =
            data.isEmpty
            ? []
            : (data.last == UInt8(ascii: "\n") ? data.dropLast() : data).split(
                separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false
            )
            .map { Data($0) }
    }

    /// How another text differs, with some lines around.
    ///
    /// - Returns: Nil: too much differs.
    func difference(to other: TextLines) -> [String]? {
        let most = min(lines.count, other.lines.count)
        let start = (0..<most).first { lines[$0] != other.lines[$0] } ?? most
        let end =
            (0..<most - start).first { lines[lines.count - 1 - $0] != other.lines[other.lines.count - 1 - $0] }
            ?? most - start
        let (old, new) = (lines[start..<lines.count - end], other.lines[start..<other.lines.count - end])
        guard max(old.count, new.count) <= Self.countMax else { return nil }
        var all = lines[..<start].map { Line.same($0) }
        all += Self.changes(Array(old), Array(new))
        all += lines[(lines.count - end)...].map { Line.same($0) }
        return Self.shown(all)
    }

    private static func changes(_ old: [Data], _ new: [Data]) -> [Line] {
        let difference = new.difference(from: old)
        var (removed, added): (Set<Int>, Set<Int>) = ([], [])
        for change in difference {
            switch change {
            case .remove(let offset, _, _): removed.insert(offset)
            case .insert(let offset, _, _): added.insert(offset)
            }
        }
        var lines: [Line] = []
        var (from, to) = (0, 0)
        while from < old.count || to < new.count {
            if from < old.count, removed.contains(from) {
                lines.append(.removed(old[from]))
                from += 1
            } else if to < new.count, added.contains(to) {
                lines.append(.added(new[to]))
                to += 1
            } else {
                lines.append(.same(new[to]))
                (from, to) = (from + 1, to + 1)
            }
        }
        return lines
    }

    private static func shown(_ lines: [Line]) -> [String] {
        var isShown = [Bool](repeating: false, count: lines.count)
        for (index, line) in lines.enumerated() {
            if case .same = line { continue }
            for near in max(0, index - contextCount)...min(lines.count - 1, index + contextCount) {
                isShown[near] = true
            }
        }
        var shown: [String] = []
        var (from, to) = (0, 0)
        for (index, line) in lines.enumerated() {
            if isShown[index], index == 0 || !isShown[index - 1] { shown.append("@@ -\(from + 1) +\(to + 1) @@") }
            let (mark, data): (String, Data)
            switch line {
            case .same(let data_): ((mark, data), from, to) = ((" ", data_), from + 1, to + 1)
            case .removed(let data_): ((mark, data), from) = (("-", data_), from + 1)
            case .added(let data_): ((mark, data), to) = (("+", data_), to + 1)
            }
            if isShown[index] { shown.append(mark + inLine(String(decoding: data, as: UTF8.self))) }
        }
        return shown
    }
}
