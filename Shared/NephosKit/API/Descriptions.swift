internal import NephosCore

// What an app prints: one line each, for a person to read. No program should take them apart.

/// The parts that there are, or what is said of none.
private func line(_ parts: [String?], else nothing: String, by separator: String = "; ") -> String {
    let parts = parts.compactMap { $0 }
    return parts.isEmpty ? nothing : parts.joined(separator: separator)
}

private func counted(_ count: Int, _ noun: String, _ nouns: String? = nil) -> String? {
    switch count {
    case 0: nil
    case 1: "1 \(noun)"
    default: "\(count) \(nouns ?? noun + "s")"
    }
}

private func listed(_ names: [some CustomStringConvertible]) -> String {
    let named = names.prefix(10).map(\.description).joined(separator: ", ")
    return names.count > 10 ? "\(named) and \(names.count - 10) more" : named
}

// MARK: Status

extension StoreStatus: CustomStringConvertible {
    public var description: String {
        line(
            [
                problem.map(\.description), initialSyncFinished ? nil : "not downloaded yet",
                pending.isEmpty ? nil : "waiting: \(listed(pending))",
                refused.isEmpty ? nil : "refused: \(listed(refused))",
                leftBehind.isEmpty ? nil : "left behind: \(listed(leftBehind.flatMap(\.names)))",
                counted(damagedChunkCount, "chunk").map { "\($0) lost by the server" },
            ], else: agrees ? "in sync" : "not compared with the server yet")
    }
}

extension StoreStatus.Pending: CustomStringConvertible {
    public var description: String { "\(listed(keys)) (\(state), \(blocker): \(reason))" }
}

extension RefusedWrite: CustomStringConvertible {
    public var description: String { "\(key) (\(error))" }
}

extension ContainerStatus: CustomStringConvertible {
    public var description: String {
        line(
            [
                line([counted(fileCount, "file"), counted(folderCount, "folder")], else: "empty", by: ", "),
                scope.problem.map(\.description), waiting.isEmpty ? nil : "waiting: \(listed(waiting))",
                downloading.isEmpty ? nil : "downloading: \(listed(downloading.map(\.path)))",
                paused.isEmpty ? nil : "paused: \(listed(paused.map(\.path)))",
                refused.isEmpty ? nil : "refused: \(listed(refused))",
                conflicts.isEmpty ? nil : "conflicts: \(listed(conflicts.map(\.path)))",
                counted(damagedChunkCount, "chunk").map { "\($0) lost by the server" },
            ], else: "")
    }
}

extension ContainerStatus.Waiting: CustomStringConvertible {
    public var description: String { "\(item.path) (\(bytes) bytes, \(blocker): \(reason))" }
}

// MARK: Changes

extension ChangeNotification: CustomStringConvertible {
    public var description: String {
        line(["\(reason)", changedKeys.isEmpty ? nil : listed(changedKeys), error?.description], else: "", by: ": ")
    }
}

extension ContainerChanges: CustomStringConvertible {
    public var description: String {
        line(
            [
                "\(reason)", isAll ? "look at all" : nil,
                changed.isEmpty ? nil : "changed: \(listed(changed.map(\.path)))",
                removed.isEmpty ? nil : "removed: \(listed(removed))", error?.description,
            ], else: "")
    }
}

extension RecordChanges: CustomStringConvertible {
    public var description: String {
        line(
            [
                "\(reason) in \(zone)", isAll ? "look at all" : nil,
                changed.isEmpty ? nil : "changed: \(listed(changed))",
                deleted.isEmpty ? nil : "deleted: \(listed(deleted))", error?.description,
            ], else: "")
    }
}

extension RecordZoneChanges: CustomStringConvertible {
    public var description: String {
        line(
            [
                "\(reason)", isAll ? "look at all" : nil, changed.isEmpty ? nil : "changed: \(listed(changed))",
                deleted.isEmpty ? nil : "deleted: \(listed(deleted))",
            ], else: "")
    }
}

extension UnsentChanges: CustomStringConvertible {
    public var description: String {
        let place = line(
            [service.rawValue, app?.rawValue, name.isEmpty ? nil : name], else: "", by: " ")
        return line([place, items.isEmpty ? nil : listed(items.map(\.name))], else: "", by: ": ")
    }
}

// MARK: Content

extension DocumentEntry: CustomStringConvertible {
    public var description: String {
        let facts = line(
            [
                kind.rawValue, kind == .folder ? nil : "\(size) bytes", state == .current ? nil : "\(state)",
                counted(conflictCount, "conflict"), isTrashed ? "in the trash" : nil,
            ], else: "", by: ", ")
        return "\(path) (\(facts))"
    }
}

extension DocumentVersion: CustomStringConvertible {
    public var description: String { "\(id) (\(standing), \(size) bytes, \(modified))" }
}

extension Record: CustomStringConvertible {
    /// The name, the type and the fields, with their values in JSON.
    public var description: String {
        let fields = fields.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value.json)" }
        let facts = line(
            [parent.map { "belongs to \($0)" }, isPending ? "waiting" : nil],
            else: "", by: ", ")
        return "\(id) (\(type)) {\(fields.joined(separator: ", "))}" + (facts.isEmpty ? "" : ", \(facts)")
    }
}

extension RecordZone: CustomStringConvertible {
    public var description: String { id == nil ? "\(name) (waiting)" : name }
}

extension RecordConflict: CustomStringConvertible {
    public var description: String {
        let (server, client) = (server?.description ?? "deleted", client?.description ?? "deleted")
        return "\(id): the server has \(server); this device \(client)"
    }
}

extension RefusedRecord: CustomStringConvertible {
    public var description: String { "\(record?.description ?? "deletion of \(id)") (\(error))" }
}

extension ScopeConflict: CustomStringConvertible {
    public var description: String { "\(name) (\(outcome), written by \(device))" }
}
