import Foundation
import NephosCore
import NephosSimulation
import NephosWire

@testable import NephosKit

/// What must hold once everything has healed.
extension ContainerHistory {
    func heal() async throws {
        note("everything heals")
        try simulation.use { cloud in
            cloud.network.faults = .none
            try cloud.faults.clear()
            for member in members { cloud.network.setOffline(member.name, false) }
        }
        for index in members.indices {
            members[index].isOffline = false
            members[index].killer.disarm()
        }
        if crashed != nil { try crashOrStart() }
        for index in members.indices where members[index].session == nil { try await open(index) }
        try await eachContainer { index, container in
            guard try await container.isReady else { return }
            for item in try await container.pauses.list() {
                try await change(index, container.id, "resumes \(item.path)") { try await $0.pauses.resume(item.id) }
            }
        }
    }

    func checkEnd() async throws {
        for index in members.indices { try await checkContents(at: index) }
        var held: [[String: [DocumentID: WireDocumentItem]]] = []
        for index in members.indices {
            var items: [String: [DocumentID: WireDocumentItem]] = [:]
            for name in Self.containers {
                guard let container = try await container(index, name) else { continue }
                let all = try container.handle.read { try $0.all() }
                items[name] = Dictionary(all.map { ($0.id, $0.wire) }) { $1 }
                try collectRefused(of: container)
            }
            held.append(items)
        }
        for index in members.indices {
            members[index].session?.close()
            members[index].session = nil
        }
        // Uploads that nobody has closed have ended by then, and what is removed in steps is.
        simulation.advance(by: Self.uploadRetention + .seconds(300))
        let audit = try simulation.use { cloud in
            try ContainerAudit(of: cloud, app: Self.app.rawValue, Self.containers)
        }
        for (member, items) in zip(members, held) {
            for name in Self.containers { try checkTree(items[name] ?? [:], of: member, audit.items(of: name)) }
        }
        try audit.check()
        try audit.checkChunks(in: store)
        try checkNothingIsLost(audit)
    }

    /// A device has just what the service has.
    private func checkTree(
        _ items: [DocumentID: WireDocumentItem], of member: Member, _ there: [DocumentID: WireDocumentItem]
    ) throws {
        for id in Set(items.keys).union(there.keys).sorted() where items[id] != there[id] {
            throw Violation(
                "\(member.name) has \(items[id].map { "\($0)" } ?? "nothing"), the service "
                    + "\(there[id].map { "\($0)" } ?? "nothing")")
        }
    }

    /// Every file can be read, and is as long as it says.
    private func checkContents(at index: Int) async throws {
        // One device reads all; half of the time what the server has, and else what is here.
        guard index == Int(counter) % members.count else { return }
        if flip(0.5) { try members[index].session?.setContentCache(maxBytes: 0) }
        defer { try? members[index].session?.setContentCache(maxBytes: nil) }
        for name in Self.containers {
            guard let container = try await container(index, name) else { continue }
            for entry in try await container.items() where entry.kind != .folder {
                for name in entry.renditionNames { _ = try await container.renditions.read(named: name, of: entry.id) }
                if entry.kind == .package { _ = try await container.packages.members(of: entry.id) }
                let data: Data
                do { data = try await container.read(entry.id) } catch {
                    throw Violation(
                        "\(members[index].name) cannot read \(entry.path), \(entry.id) of \(entry.size): \(error)")
                }
                let (root, inline) = try Self.root(of: data)
                guard puts.contains(where: { $0.bytes == root + inline }) else {
                    throw Violation("\(entry.path) has bytes that nobody put there: \(data.count)")
                }
            }
        }
    }

    /// The bytes of what was refused are in the home until somebody has dismissed it.
    private func collectRefused(of container: UbiquityContainer) throws {
        let folder = try ContentFolder(home: container.handle.session.local.home)
        for refusal in try container.handle.read({ try $0.refusals() }) {
            note("refused on \(container.handle.session.home.path): \(refusal.path): \(refusal.error)")
            guard let version = refusal.version else { continue }
            let data = try Data(contentsOf: URL(fileURLWithPath: folder.file(version)))
            let (root, inline) = try Self.root(of: data)
            refused.insert(root + inline)
        }
    }

    /// What was made again has another id.
    private func checkNothingIsLost(_ audit: ContainerAudit) throws {
        let known = audit.contents.union(refused).union(removedContents)
        for put in puts where !removed.contains(put.item) && !put.isForgotten {
            guard known.contains(put.bytes) else {
                throw Violation(
                    "What was put at \(put.path) is lost: \(put.item), \(String(decoding: put.inline, as: UTF8.self)); "
                        + "it has \(audit.versionCount(of: put.item)) versions")
            }
        }
    }
}

extension UbiquityContainer {
    /// Whether it was downloaded once.
    fileprivate var isReady: Bool {
        get async throws {
            do throws(CloudError) { _ = try await head() } catch {
                guard error.code == .storeOutOfStep else { throw error }
                return false
            }
            return true
        }
    }
}
