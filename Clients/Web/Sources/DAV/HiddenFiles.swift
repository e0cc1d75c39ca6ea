internal import Foundation
internal import NephosCore
internal import Synchronization

/// Files that a file manager keeps for itself: `.DS_Store`, and `._name` with a Mac's further attributes of a file. They
/// are in memory while the session is open, and no other device gets them.
final class HiddenFiles: Sendable {
    struct File {
        var bytes: [UInt8]
        var modified: Date
        var tag: String
    }

    static let bytesMax = 1 << 20
    private static let totalMax = 8 << 20

    private let files = Mutex<[DavPath: File]>([:])

    static func isHidden(_ path: DavPath) -> Bool {
        path.last == Data(".DS_Store".utf8) || path.last.starts(with: Data("._".utf8))
    }

    subscript(path: DavPath) -> File? { files.withLock { $0[path] } }

    /// - Returns: False: there is no room.
    func put(_ bytes: [UInt8], at path: DavPath) -> Bool {
        files.withLock { files in
            let others = files.reduce(0) { $0 + ($1.key == path ? 0 : $1.value.bytes.count) }
            guard others + bytes.count <= Self.totalMax, files.count < 10_000 else { return false }
            files[path] = File(bytes: bytes, modified: Date(), tag: "\"\(UUID().uuidString)\"")
            return true
        }
    }

    @discardableResult
    func remove(_ path: DavPath) -> Bool { files.withLock { $0.removeValue(forKey: path) != nil } }

    func move(_ path: DavPath, to target: DavPath) {
        files.withLock { files in
            guard let file = files.removeValue(forKey: path) else { return }
            files[target] = file
        }
    }

    func children(of folder: DavPath) -> [(name: Data, file: File)] {
        files.withLock { files in
            files.filter { $0.key.container == folder.container && $0.key.names.dropLast() == folder.names[...] }
                .map { ($0.key.last, $0.value) }
        }
    }
}

/// Where items were that this session has deleted or moved away a moment ago. An editor that saves so gets the same item
/// again when it makes a file of the name, with its versions.
final class RecentPlaces: Sendable {
    enum Departure: Equatable {
        /// It lies in the trash.
        case deleted(DocumentID)
        case moved(DocumentID, to: DavPath)
    }

    private static let memory: Duration = .seconds(60)
    private static let countMax = 256

    private let made = Mutex<[DocumentID: ContinuousClock.Instant]>([:])
    private let places = Mutex<[DavPath: (departure: Departure, time: ContinuousClock.Instant)]>([:])

    func note(_ departure: Departure, from path: DavPath) {
        places.withLock { places in
            if places.count >= Self.countMax {
                places = places.filter { ContinuousClock.now - $0.value.time < Self.memory }
                if places.count >= Self.countMax { places = [:] }
            }
            places[path] = (departure, .now)
        }
    }

    func noteMade(_ id: DocumentID) {
        made.withLock { made in
            if made.count >= Self.countMax { made = made.filter { ContinuousClock.now - $0.value < Self.memory } }
            if made.count < Self.countMax { made[id] = .now }
        }
    }

    /// Whether this session has made the item within a minute.
    func wasMade(_ id: DocumentID) -> Bool {
        made.withLock { $0[id].map { .now - $0 < Self.memory } ?? false }
    }

    /// The item that left the place within a minute. It is returned once.
    func take(_ path: DavPath) -> Departure? {
        places.withLock { places in
            guard let place = places.removeValue(forKey: path), .now - place.time < Self.memory else { return nil }
            return place.departure
        }
    }
}
