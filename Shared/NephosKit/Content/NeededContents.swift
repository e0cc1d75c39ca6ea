internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore

/// Files of a home's contents that a row names, of whichever account, service and container: of those that wait or were
/// refused, of those that the server has too, and of those that are on their way here.
struct NeededContents: Sendable {
    /// Copies, and of all kinds of scopes. A home has some of the tables: nobody may have used a service in it yet.
    let columns: [FileColumn]

    func all(_ database: Database) throws -> Set<DocumentID> {
        var needed: Set<DocumentID> = []
        for place in columns where try database.tableExists(place.table) {
            let files = try Data.fetchCursor(
                database, sql: "SELECT \(place.column) FROM \(place.table) WHERE \(place.column) IS NOT NULL")
            while let file = try files.next() { if let file = DocumentID(bytes: file) { needed.insert(file) } }
        }
        return needed
    }

    func has(_ file: DocumentID, _ database: Database) throws -> Bool {
        for place in columns where try database.tableExists(place.table) {
            let isNamed = try Bool.fetchOne(
                database.cachedStatement(
                    sql: "SELECT EXISTS (SELECT 1 FROM \(place.table) WHERE \(place.column) = ?1)"),
                arguments: [file.wire])
            if isNamed ?? true { return true }
        }
        return false
    }
}

extension DeviceEngine {
    var neededContents: NeededContents {
        NeededContents(columns: [FileColumn(table: "content_copies", column: "file")] + kinds.flatMap(\.fileColumns))
    }

    /// What is in memory because the home could not be written does not know what others have put since.
    var canSweepContents: Bool { (try? local.requireWritable()) != nil }

    /// Removes the files of those of the contents that no row names any more.
    func removeContents(_ files: [DocumentID]) {
        guard !files.isEmpty, !stopped, canSweepContents, let folder = try? ContentFolder(home: local.home) else {
            return
        }
        let needed = neededContents
        let unneeded = try? local.read { database in try files.filter { try !needed.has($0, database) } }
        for file in unneeded ?? [] { folder.remove(file) }
    }

    /// Removes the files of contents that no row names: of a process that was ended, or of an account that has left.
    /// Where somebody stages, or it fails, it is tried again, with growing pauses.
    func sweepContents(_ retry: Retry = Retry()) {
        guard !stopped, sweeping == nil, canSweepContents, let folder = try? ContentFolder(home: local.home) else {
            return
        }
        let (local, needed) = (local, neededContents)
        loop.offload(to: .content) {
            try folder.sweep { try local.read { try needed.all($0) } }
        } then: { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(true): return noteSwept()
            case .success(false): break
            case .failure(let error):
                logger.error("contents that nobody needs could not be removed", CloudError(wrapping: error))
            }
            guard !stopped, sweeping == nil else { return }
            var retry = retry
            sweeping = loop.schedule(after: failed(&retry)) { [weak self, retry] in
                self?.sweeping = nil
                self?.sweepContents(retry)
            }
        }
    }

    /// What an account has left goes also where the process ends before that, whatever the next one is for.
    func sweepWhatIsLeft() throws(CloudError) {
        if try local.read({ try Facts($0).hasContentsLeft }) { sweepContents() }
    }

    private func noteSwept() {
        do throws(CloudError) {
            guard try local.read({ try Facts($0).hasContentsLeft }) else { return }
            try local.write { try Facts($0).setHasContentsLeft(false) }
        } catch { logger.error("that an account's contents are removed could not be noted", error) }
    }
}

extension Facts {
    private static let contentsLeft = "contents_left"

    /// Whether an account has left, and its contents are yet to be removed.
    fileprivate var hasContentsLeft: Bool {
        get throws { try value(Self.contentsLeft, as: Bool.self) ?? false }
    }

    func setHasContentsLeft(_ isSo: Bool) throws { try set(Self.contentsLeft, isSo ? true : nil) }
}
