internal import Foundation
internal import NephosContent
internal import NephosCore
internal import NephosFiles
internal import NephosServiceKit

/// Removes snapshots that need not be kept, and then what no other one names. Only by whoever holds the folder.
///
/// A snapshot loses its name first, in one step. Only then are segments looked for that no manifest names; if one cannot
/// be read, nobody knows what it names, and all stay. So a crash in between leaves too much, and never too little.
struct Thinning {
    let folder: BackupFolder
    var fault: (String) throws -> Void = { _ in }

    /// - Returns: The snapshots that were removed, and how many bytes.
    func run(_ retention: Retention) throws -> (removed: [String], bytes: Int) {
        let all = try folder.snapshots()
        let readable = all.compactMap { snapshot in snapshot.manifest.map { (snapshot: snapshot, manifest: $0) } }
        let removable = retention.removable(
            of: readable.map { snapshot, manifest in
                Retention.Item(
                    number: manifest.number, time: manifest.time,
                    isWhole: !snapshot.isKnownDamaged && folder.isComplete(snapshot.name, manifest))
            })
        var bytes = 0
        var removed: [String] = []
        for (snapshot, manifest) in readable where removable.contains(manifest.number) {
            let gone = folder.path(of: "." + snapshot.name + ".gone")
            try FileCopy.rename(folder.path(of: snapshot.name), to: gone)
            try FileCopy.sync(folder.snapshotsPath)
            try fault("unnamed")
            FileTree.remove(gone)
            bytes += manifest.databaseBytes
            removed.append(snapshot.name)
        }
        return (removed, bytes + (try removeSegments()))
    }

    /// - Returns: How many bytes were removed.
    private func removeSegments() throws -> Int {
        let left = try folder.snapshots()
        guard left.allSatisfy({ $0.manifest != nil }) else { return 0 }
        let named = Set(left.flatMap { $0.manifest?.segments.flatMap { [$0.file] + $0.otherFiles } ?? [] })
        var bytes = 0
        for service in Deployment.contentServices {
            for name in try folder.segmentFiles(of: service) {
                guard let copy = SegmentCopy(service, filePath: name), !named.contains(copy) else { continue }
                let path = folder.segmentsPath(of: service) + "/" + name
                bytes += FileCopy.byteCount(path) ?? 0
                unlink(path)
                try fault("segment removed")
            }
        }
        return bytes
    }
}
