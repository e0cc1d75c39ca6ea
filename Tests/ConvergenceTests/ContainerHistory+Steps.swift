import Foundation
import NephosChunks
import NephosCore
import NephosSimulation

@testable import NephosKit

/// What happens in a history.
extension ContainerHistory {
    private static let names = ["a.txt", "b", "B", "鍵", "e\u{301}", "\u{e9}"]
    private static let folders = ["", "f/", "f/g/", "h/"]

    /// What goes wrong by itself now and then.
    private static let faults: [(String, FaultPoint.Kind)] = [
        ("documents.read", .fails), ("documents.commit", .fails), ("documents.commit", .halfDone),
        ("documents.send", .halfDone), ("documents.receive", .halfDone), ("documents.receive", .fails),
        ("documents.publish", .fails), ("documents.publish", .halfDone), ("documents.content.read", .fails),
        ("documents.content.write", .fails), ("documents.content.write", .halfDone), ("device.save", .fails),
        ("device.read", .fails), ("device.receive", .halfDone), ("device.send", .halfDone),
        ("device.writer.flush", .fails), ("device.download.keep", .fails),
    ]

    func step() async throws {
        let index = Int.random(in: members.indices, using: &generator)
        if hasKills, flip(0.06) {
            let place = DeviceKiller.places.randomElement(using: &generator) ?? "save"
            let passes = place == "save" ? Int.random(in: 0...6, using: &generator) : 0
            note("\(members[index].name) is to be ended at \(place), after \(passes)")
            members[index].killer.arm(place, after: passes)
            return try await come(to: "device.\(place)", index)
        }
        if hasRestores, flip(0.06) { return flip(0.6) ? try copyStorage() : try await restore() }
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<58: try await changeSomething(index)
        case ..<62: try await read(index, path())
        case ..<65: try await fetch(index, path())
        case ..<72: setOffline(index, true)
        case ..<82: setOffline(index, false)
        case ..<87:
            note("\(members[index].name) restarts")
            if flip(0.3) { try simulation.use { try $0.faults.fail("device.open") } }
            try await open(index)
        case ..<92: try crashOrStart()
        default:
            guard let (name, kind) = Self.faults.randomElement(using: &generator) else { return }
            note("\(name) \(kind)")
            try simulation.use { cloud in
                if kind == .fails { try cloud.faults.fail(name) } else { try cloud.faults.leaveHalfDone(name) }
            }
            try await come(to: name, index)
        }
    }

    /// Does what comes to a place that few steps come to, while something is to go wrong there.
    private func come(to place: String, _ index: Int) async throws {
        switch place {
        case "documents.content.read", "device.download.keep":
            try await change(index, Self.containers[0], "fetches all") { try await $0.downloads.start("/") }
            try await read(index, path())
        case "documents.content.write", "device.writer.flush":
            try await put(index, Self.containers[0], at: path(), inPieces: true)
        default: break
        }
    }

    private func changeSomething(_ index: Int) async throws {
        let place = path()
        let name = Self.containers[flip(0.2) ? 1 : 0]
        switch Int.random(in: 0..<64, using: &generator) {
        case ..<20: try await put(index, name, at: place)
        case ..<24: try await putPackage(index, name, at: place)
        case ..<28: try await setRendition(index, name, of: place)
        case ..<32:
            try await change(index, name, "makes a folder \(place)") {
                try await $0.makeFolder(at: place, makesParents: true)
            }
        case ..<39: try await move(index, name, flip(0.4) ? first(of: place) : place)
        case ..<42: try await carry(index, from: name, flip(0.4) ? first(of: place) : place)
        case ..<48: try await trash(index, name, flip(0.4) ? first(of: place) : place)
        case ..<52: try await undo(index, name)
        case ..<55: try await remove(index, name)
        case ..<59: try await pauseOrResume(index, name, place)
        case ..<61:
            try await change(index, name, "removes other versions of \(place)") { [self] container in
                let item = try await container.item(at: place)?.id
                try await container.versions.removeOthers(of: place)
                // Which those were that are removed for that, the service decides.
                for put in puts where put.item == item { removedContents.insert(put.bytes) }
            }
        default: try await decide(index, name, place)
        }
    }

    private func path() -> String {
        (Self.folders.randomElement(using: &generator) ?? "") + (Self.names.randomElement(using: &generator) ?? "a")
    }

    /// The folder at the top that the path leads through.
    private func first(of path: String) -> String { String(path.split(separator: "/").first ?? "f") }

    private func setOffline(_ index: Int, _ isOffline: Bool) {
        members[index].isOffline = isOffline
        note("\(members[index].name) \(isOffline ? "offline" : "online")")
        simulation.use { $0.network.setOffline(members[index].name, isOffline) }
    }

    func crashOrStart() throws {
        if let service = crashed {
            note("\(service) starts")
            try simulation.use { try $0.start(service) }
            crashed = nil
        } else {
            let service = flip(0.6) ? ServiceName.documents : flip(0.5) ? .identity : .notifications
            note("\(service) crashes")
            simulation.use { $0.crash(service) }
            crashed = service
        }
    }

    /// What an app may be told of a change that cannot be.
    private static let expected: Set<CloudError.Code> = [
        .unknownItem, .alreadyExists, .invalidArguments, .storeOutOfStep, .storageFailure, .constraintViolation,
        .serviceBusy, .deadlineExceeded, .networkFailure, .serviceUnavailable, .limitExceeded,
    ]

    func change(
        _ index: Int, _ name: String, _ text: String, _ body: (UbiquityContainer) async throws -> some Any
    ) async throws {
        note("\(members[index].name) \(name == Self.containers[0] ? "" : "in the other ")\(text)")
        do {
            if let container = try await container(index, name) { _ = try await body(container) }
        } catch let error as CloudError where Self.expected.contains(error.code) { note("  \(error)") }
    }

    // MARK: Contents

    /// Bytes that no other put has; long ones have a beginning in common with others, or an end.
    private func bytes() -> Data {
        counter += 1
        let text = Data("put \(counter)".utf8)
        guard flip(0.35) else { return text }
        let lengths = [5000, 70_000, 300_000, 900_000]
        let seed = UInt64.random(in: 1...2, using: &generator)
        var shared = SplitMix64(seed: seed)
        let length = lengths.randomElement(using: &generator) ?? 5000
        let random = (0..<length / 8).flatMap { _ in withUnsafeBytes(of: shared.next()) { Array($0) } }
        // Of one of the two the chunks are compressed.
        let body = Data(seed == 1 ? random : random.map { 48 + $0 % 10 })
        return flip(0.5) ? text + body : body + text
    }

    private func accept(_ data: Data, of item: DocumentID, at path: String) throws {
        let (root, inline) = try Self.root(of: data)
        puts.append(Put(item: item, root: root, inline: inline, path: path))
    }

    private func put(_ index: Int, _ name: String, at path: String, inPieces: Bool? = nil) async throws {
        let (data, inPieces) = (bytes(), inPieces ?? flip(0.3))
        try await change(index, name, "puts \(counter) of \(data.count) at \(path)") { container in
            guard inPieces else {
                let entry = try await container.put(data, at: path, makesFolders: true)
                return try accept(data, of: entry.id, at: path)
            }
            let writer = try container.streams.makeWriter(at: path, makesFolders: true)
            try await writer.write(data)
            try accept(data, of: try await writer.finish().id, at: path)
        }
    }

    /// A folder with a file of its own, and one that others have too.
    private func putPackage(_ index: Int, _ name: String, at path: String) async throws {
        let package = folder + "-package"
        try FileManager.default.createDirectory(atPath: package + "/f", withIntermediateDirectories: true)
        let data = bytes()
        try data.write(to: URL(fileURLWithPath: package + "/f/x"))
        let list = try LocalPackage(LocalPath(package), allowsOpenDatabase: false).list
        try await change(index, name, "puts \(counter) as a package at \(path)") { container in
            let entry = try await container.localFiles.putPackage(
                URL(fileURLWithPath: package), at: path, makesFolders: true)
            try accept(Data(list.encoded()) + data, of: entry.id, at: path)
        }
    }

    private func setRendition(_ index: Int, _ name: String, of path: String) async throws {
        let (data, rendition) = (bytes(), flip(0.5) ? "small" : "large")
        if flip(0.2) {
            try await change(index, name, "takes \(rendition) of \(path) away") {
                try await $0.renditions.remove(named: rendition, of: path)
            }
        } else {
            try await change(index, name, "sets \(counter) of \(data.count) as \(rendition) of \(path)") {
                try await $0.renditions.set(data, named: rendition, of: path)
            }
        }
    }

    static func root(of data: Data) throws -> (root: Data, inline: Data) {
        guard data.count > DocumentLimits.inlineBytesMax else { return (Data(), data) }
        var cutter = ContentCutter()
        try data.withUnsafeBytes { try cutter.take($0) }
        return (try Data(cutter.finish().root.bytes), Data())
    }

    /// Of two contents that were written at once one is chosen; or a version is made beside the current one.
    private func decide(_ index: Int, _ name: String, _ path: String) async throws {
        let (data, keepsOthers) = (bytes(), flip(0.5))
        if flip(0.3) {
            return try await change(index, name, "adds \(counter) of \(data.count) beside \(path)") { container in
                let item = try await container.item(at: path)
                try await container.versions.add(data, of: path)
                if let item { try accept(data, of: item.id, at: path) }
            }
        }
        try await change(index, name, "resolves a conflict") { container in
            guard
                let entry = try await container.items().filter({ $0.conflictCount > 0 })
                    .randomElement(using: &generator)
            else { return }
            let version = try await container.conflicts.versions(of: entry.id).randomElement(using: &generator)
            try await container.conflicts.resolve(entry.id, keeping: version?.id, keepsOthers: keepsOthers)
        }
    }

    private func read(_ index: Int, _ path: String) async throws {
        note("\(members[index].name) reads \(path)")
        do { _ = try await container(index)?.read(path, timeout: .seconds(2)) } catch let error as CloudError {
            note("  \(error)")
            guard error.code != .internalError else { throw error }
        }
    }

    /// Has a content come, or go from here.
    private func fetch(_ index: Int, _ path: String) async throws {
        if flip(0.7) {
            try await change(index, Self.containers[0], "fetches all") { try await $0.downloads.start("/") }
        } else {
            try await change(index, Self.containers[0], "evicts \(path)") { try await $0.downloads.evict(path) }
        }
    }

    // MARK: Places

    private func move(_ index: Int, _ name: String, _ source: String) async throws {
        let (target, replaces, isGuarded) = (path(), flip(0.5), flip(0.2))
        try await change(index, name, "moves \(source) to \(target)\(isGuarded ? ", if it is as it was" : "")") {
            let conditions = isGuarded ? try await $0.item(at: source).map { DocumentCondition.asRead($0) } ?? [] : []
            return try await $0.move(source, to: target, replaces: replaces, conditions: conditions)
        }
    }

    /// To the app's other container: no bytes are sent.
    private func carry(_ index: Int, from name: String, _ source: String) async throws {
        let (target, replaces, moves) = (path(), flip(0.5), flip(0.5))
        let name2 = Self.containers.first { $0 != name } ?? name
        try await change(index, name, "\(moves ? "moves" : "copies") \(source) to \(target) over there") { here in
            guard let there = try await container(index, name2) else { return }
            if moves {
                try await here.move(source, to: target, in: there, replaces: replaces)
            } else {
                try await here.copy(source, to: target, in: there, replaces: replaces)
            }
        }
    }

    private func trash(_ index: Int, _ name: String, _ source: String) async throws {
        let isGuarded = flip(0.3)
        try await change(index, name, "trashes \(source)\(isGuarded ? ", if nothing has changed" : "")") {
            guard isGuarded, let item = try await $0.item(at: source), item.kind == .folder else {
                return try await $0.trash([source])
            }
            return try await $0.trash([source], conditions: [.unchanged(item.id, since: try await $0.head())])
        }
    }

    /// Takes something that was deleted out of the trash: what was last, or any.
    private func undo(_ index: Int, _ name: String) async throws {
        let isAny = flip(0.5)
        try await change(index, name, "restores\(isAny ? " any" : "")") { container in
            let batch = isAny ? try await container.trash.list().randomElement(using: &generator)?.batch : nil
            return try await container.trash.restore(batch)
        }
    }

    /// Removes what this device has seen lie in the trash.
    private func remove(_ index: Int, _ name: String) async throws {
        try await change(index, name, "removes for good") { container in
            guard let batch = try await container.trash.list().randomElement(using: &generator) else { return }
            try await container.trash.remove(batch.batch)
            let roots = Set(batch.items.map(\.id))
            let gone = try container.handle.read { documents in
                try documents.all().filter { item in
                    try roots.contains { try documents.isFolder(item.id, in: $0) }
                }
            }
            removed.formUnion(roots.union(gone.map(\.id)))
            // What was made again has another id.
            for content in gone.flatMap({ [$0.wire.content] + $0.wire.conflicts }) {
                removedContents.insert(content.root + content.inline)
            }
        }
    }

    // MARK: Pauses

    private func pauseOrResume(_ index: Int, _ name: String, _ path: String) async throws {
        guard flip(0.6) else {
            return try await change(index, name, "pauses \(path)") { try await $0.pauses.pause(path) }
        }
        let behavior = ResumeBehavior.allCases.randomElement(using: &generator) ?? .preserveLocalChanges
        try await change(index, name, "resumes with \(behavior)") { container in
            guard let paused = try await container.pauses.list().randomElement(using: &generator) else { return }
            note("  \(paused.path)")
            _ = try await container.pauses.resume(paused.id, with: behavior, timeout: .seconds(2))
        }
    }
}
