internal import Foundation
internal import NephosCore
internal import NephosFiles

// Paths that programs have asked to leave alone.
extension FolderSync {
    /// Takes note of leases at the beginning of a pass.
    func takeLeases() {
        guard let control else { return }
        let active = PathLease.active(control)
        let top = root.path.utf8.count + 1
        let paths = active.filter { $0.path == root.path || $0.path.hasPrefix(root.path + "/") }.map { path, _ in
            path.utf8.dropFirst(top).split(separator: UInt8(ascii: "/")).map { FileName($0) }
        }
        if paths != leases {
            leases = paths
            // What was passed over is looked at, or passed over once more.
            for place in leasedPlaces { dirty.insert(place) }
            leasedPlaces = []
            if !remote.postponed.isEmpty { retryNow() }
        }
        for (_, file) in active { PathLease.confirm(file) }
    }

    /// Whether a program has asked to leave a place alone.
    ///
    /// - Parameter isMoved: Whether the place would move or go with everything in it.
    func isLeased(_ place: Place, isMoved: Bool = false) -> Bool {
        guard !leases.isEmpty, let folder = try? read({ try $0.path(of: place.folder) }) else { return false }
        let path = folder + [place.name]
        return leases.contains { path.starts(with: $0) || isMoved && $0.starts(with: path) }
    }

    /// Whether a local change waits until a program has ended.
    func passesOver(_ place: Place) -> Bool {
        guard isLeased(place) else { return false }
        leasedPlaces.insert(place)
        return true
    }

    /// Whether another device's change waits until a program has ended. Then it is blocked.
    func waitsForLease(_ place: Place, _ item: DocumentID, isMoved: Bool = false) -> Bool {
        guard isLeased(place, isMoved: isMoved) else { return false }
        block(place, "A program works there (nephos agent coordinate), so another device's change waits.", of: item)
        return true
    }
}
