import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf

@testable import NephosKit

/// The service comes back from an old copy, or with nothing.
extension ContainerHistory {
    func copyStorage() throws {
        guard hasRestores else { return }
        note("copy \(copies.count)")
        copies.append(try simulation.use { try $0.copyStorage(of: .documents) })
    }

    func restore() async throws {
        restoreCount += 1
        let number = flip(0.15) ? nil : copies.indices.randomElement(using: &generator)
        note("restore \(number.map { "\($0)" } ?? "nothing")")
        let held = try await held().values.reduce(into: Set<Data>()) { $0.formUnion($1) }
        for index in puts.indices where !held.contains(puts[index].bytes) {
            if !puts[index].isForgotten {
                note("  nobody has what was put at \(puts[index].path): \(puts[index].item)")
            }
            puts[index].isForgotten = true
        }
        try simulation.use { try $0.restore(number.map { copies[$0] }, of: .documents) }
        if crashed == .documents { crashed = nil }
    }

    /// Contents that some device has, as they are now or on their way, with their bytes; by container.
    private func held() async throws -> [String: Set<Data>] {
        var held: [String: Set<Data>] = [:]
        try await eachContainer { _, container in
            try simulation.use { try $0.faults.clear("device.read") }
            try container.handle.read { documents in
                var contents = try documents.all().flatMap { [$0.wire.content] + $0.wire.conflicts }
                for operation in try documents.rows.operations()
                where try DocumentQuestion(operation.payload) == nil {
                    contents += try WireApplyChanges(serializedBytes: operation.payload).changes.compactMap(\.content)
                }
                for content in contents where try documents.hasBytes(of: content) {
                    held[container.id, default: []].insert(content.root + content.inline)
                }
            }
        }
        return held
    }

    /// Once all is quiet the service comes back once more: then each item is again as it was, under its own id, with its
    /// versions, its place, and its batch if it lies in the trash.
    func checkRestore() async throws {
        let before = try await items(of: 0)
        let held = try await held()
        try await restore()
        try await settle()
        let after = try await items(of: 0)
        for (name, items) in before {
            for (id, item) in items {
                let contents = ([item.content] + item.conflicts).filter { !$0.version.isEmpty }
                guard contents.allSatisfy({ held[name]?.contains($0.root + $0.inline) == true }) else { continue }
                guard let now = after[name]?[id] else { throw Violation("\(id) is gone, and was \(item)") }
                guard item.whatStays.isBack(as: now.whatStays, isFirst: restoreCount == 1) else {
                    throw Violation(
                        """
                        \(id) was \(item.whatStays), and is \(now.whatStays)
                          all before: \(Self.list(items))
                          all after: \(Self.list(after[name] ?? [:]))
                        """)
                }
            }
        }
    }

    private static func list(_ items: [DocumentID: WireDocumentItem]) -> String {
        items.map {
            "\($0.description.prefix(6)) \($1.plainName) in \(DocumentID(bytes: $1.parent).map { $0.description.prefix(6) } ?? "-")\($1.hasTrash ? " (trash)" : "") \($1.kind)"
        }
        .sorted().joined(separator: "; ")
    }

    private func items(of index: Int) async throws -> [String: [DocumentID: WireDocumentItem]] {
        var items: [String: [DocumentID: WireDocumentItem]] = [:]
        for name in Self.containers {
            let all = try await container(index, name)?.handle.read { try $0.all() } ?? []
            items[name] = Dictionary(all.map { ($0.id, $0.wire) }) { $1 }
        }
        return items
    }
}

extension DocumentTransaction {
    fileprivate func hasBytes(of content: WireDocumentContent) throws -> Bool {
        guard !content.root.isEmpty else { return true }
        return try copies.has(content) || heldVersion(of: content) != nil
    }
}

/// What of an item is the same after a restore.
struct LastingItem: Hashable {
    var kind: WireItemKind
    var parent: DocumentID?
    var name: String
    /// The current one, and those that it is in conflict with: of these it may be another.
    var contents: Set<Authored>
    var deletion: Authored?
    /// Who has made it.
    var made: Authored

    /// What was done by whom, and when.
    struct Authored: Hashable {
        var id: DocumentID?
        var app: String
        var device: String
        var time: Int64

        /// What a device has committed before a restore that lost it, and sent once more because it had no answer, was
        /// done at two times, in two histories of the service. A later restore may bring the first of them back.
        func isBack(as other: Authored) -> Bool {
            var same = self
            same.time = other.time
            return same == other && other.time <= time
        }
    }

    /// Whether it is the same again.
    ///
    /// - Parameter isFirst: No copy came back before. Else nobody can tell of what comes back with this one whether the
    ///   present content was made from it: they may be in conflict.
    func isBack(as other: LastingItem, isFirst: Bool) -> Bool {
        guard kind == other.kind, parent == other.parent, name.hasSameBytes(as: other.name),
            isFirst ? contents.count == other.contents.count : contents.count <= other.contents.count,
            made.isBack(as: other.made)
        else { return false }
        switch (deletion, other.deletion) {
        case (nil, nil): break
        case (let own?, let there?): guard own.isBack(as: there) else { return false }
        default: return false
        }
        return contents.allSatisfy { content in other.contents.contains { content.isBack(as: $0) } }
    }
}

extension WireDocumentItem {
    /// Without the number that tells it from another of its folder: with the copy comes back what was removed since, and
    /// who has a name first keeps it.
    fileprivate var plainName: String {
        var text = String(decoding: name, as: UTF8.self)
        while let range = text.range(of: #" [0-9]+(?=$|\.)"#, options: .regularExpression) {
            text.removeSubrange(range)
        }
        return text
    }

    fileprivate var whatStays: LastingItem {
        LastingItem(
            kind: kind, parent: DocumentID(bytes: parent), name: plainName,
            contents: Set(
                ([content] + conflicts).filter { !$0.version.isEmpty }.map {
                    LastingItem.Authored(
                        id: DocumentID(bytes: $0.version), app: $0.appID, device: $0.deviceID, time: $0.committed)
                }),
            deletion: hasTrash
                ? LastingItem.Authored(
                    id: DocumentID(bytes: trash.batch), app: trash.appID, device: trash.deviceID, time: trash.trashed)
                : nil,
            made: LastingItem.Authored(id: nil, app: made.appID, device: made.deviceID, time: made.made))
    }
}
