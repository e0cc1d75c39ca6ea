internal import Foundation
public import NephosCore
internal import NephosFiles

/// The mark of a restore that has begun to replace what is in a folder, and has not come to its end.
///
/// It lies in the deployment's folder and in each service's own, from before the first file is moved until all are
/// where they belong. Whoever finds it starts nothing.
public struct UnfinishedRestore: Codable, Sendable {
    /// The snapshot that was being restored.
    public var snapshot: String
    /// Where what was there before is, within each folder.
    public var aside: String

    public init(snapshot: String, aside: String) {
        self.snapshot = snapshot
        self.aside = aside
    }

    private static func path(in folder: String) -> String { folder + "/restore.unfinished" }

    /// Whether there is a mark.
    public static func isThere(in folder: String) -> Bool { access(path(in: folder), F_OK) == 0 }

    /// What the mark says; nil: there is none, or nobody can read it.
    public static func read(in folder: String) -> UnfinishedRestore? {
        FileManager.default.contents(atPath: path(in: folder)).flatMap {
            try? JSONDecoder().decode(UnfinishedRestore.self, from: $0)
        }
    }

    /// Makes the mark. When it returns, it survives a loss of power.
    public func write(in folder: String) throws {
        try AtomicFile.write(try JSONEncoder().encode(self), to: Self.path(in: folder), mode: 0o644)
    }

    /// Takes the mark away, for good when it returns.
    public static func remove(in folder: String) {
        unlink(path(in: folder))
        let descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        fsync(descriptor)
        close(descriptor)
    }

    /// - Throws: ``CloudError`` `.configurationInvalid`; the message names the cure.
    public static func require(noneIn folder: String) throws(CloudError) {
        guard isThere(in: folder) else { return }
        var details = ["folder": folder]
        details["snapshot"] = read(in: folder)?.snapshot
        throw CloudError(
            .configurationInvalid,
            "A restore into this folder has not come to its end, and what is here is not whole. Run it again: nephos restore",
            details: details)
    }
}
