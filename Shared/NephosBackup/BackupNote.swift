internal import Foundation
internal import NephosCore
internal import NephosFiles

/// What a deployment knows of its last backup, in the file `backup.json` of its folder: for `nephos status` alone.
///
/// A note that cannot be read or written fails no backup; the deployment then knows of none.
public struct BackupNote: Codable, Sendable {
    /// The folder of backups.
    public var folder: String
    /// The name of the last snapshot.
    public var snapshot: String
    /// When the snapshot was made, in milliseconds since 1970.
    public var madeAt: UInt64
    /// When all snapshots of the folder were last read through and found whole, in milliseconds since 1970.
    public var verifiedAt: UInt64?

    /// A note of a snapshot that was made now.
    public init(folder: BackupFolder, snapshot: String, madeAt: UInt64) {
        (self.folder, self.snapshot, self.madeAt) = (folder.path, snapshot, madeAt)
    }

    /// The note of a deployment; nil when there is none that can be read.
    ///
    /// - Parameter deployment: The deployment's folder.
    public init?(of deployment: String) {
        guard let data = FileManager.default.contents(atPath: Self.path(in: deployment)),
            let note = try? JSONDecoder().decode(BackupNote.self, from: data)
        else { return nil }
        self = note
    }

    /// Keeps the note in the deployment's folder. A snapshot in the same folder keeps the time of the last verification.
    ///
    /// - Returns: False when it could not be written.
    @discardableResult
    public func keep(in deployment: String) -> Bool {
        var note = self
        if let before = BackupNote(of: deployment), before.folder == folder, note.verifiedAt == nil {
            note.verifiedAt = before.verifiedAt
        }
        guard let data = try? JSONEncoder().encode(note) else { return false }
        return (try? AtomicFile.write(data, to: Self.path(in: deployment), mode: 0o644)) != nil
    }

    /// Notes that all snapshots of the folder were found whole, if the deployment's backups are there.
    public static func keepVerification(of folder: BackupFolder, at milliseconds: UInt64, in deployment: String) {
        guard var note = BackupNote(of: deployment), note.folder == folder.path else { return }
        note.verifiedAt = milliseconds
        note.keep(in: deployment)
    }

    private static func path(in deployment: String) -> String { deployment + "/backup.json" }
}
