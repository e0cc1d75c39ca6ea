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
    /// The same of runs before this one that were killed too, the first of them first. What the deployment was is there.
    public var earlier: [String]?

    public init(snapshot: String, aside: String, earlier: [String] = []) {
        self.snapshot = snapshot
        self.aside = aside
        self.earlier = Array(earlier.prefix(Self.earlierMax))
    }

    private static let earlierMax = 100
    /// How the name of a folder begins into which a restore has moved what was there.
    public static let asidePrefix = "before-restore-"
    /// What is restored is copied into a folder of this name first, in each service's own.
    public static let staging = ".restoring"

    /// All folders' names that the mark says. Whoever may write to the folder can have written it.
    public var asides: [String] {
        ((earlier ?? []) + [aside]).filter { $0.hasPrefix(Self.asidePrefix) && !$0.contains("/") }
    }

    private static func path(in folder: String) -> String { folder + "/restore.unfinished" }

    /// Whether there is a mark.
    public static func isThere(in folder: String) -> Bool { access(path(in: folder), F_OK) == 0 }

    /// What the mark says; nil: there is none, or nobody can read it.
    public static func read(in folder: String) -> UnfinishedRestore? {
        // Root reads it where somebody else may have put a link, a pipe, or something without end.
        let descriptor = open(path(in: folder), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: bytesMax)
        let count = pread(descriptor, &bytes, bytes.count, 0)
        guard count > 0 else { return nil }
        return try? JSONDecoder().decode(UnfinishedRestore.self, from: Data(bytes[..<count]))
    }

    private static let bytesMax = 16 << 10

    /// Where a restore that was killed before it replaced anything has left its copy, which can be as large as all that
    /// is there; nil: nowhere. Also while a restore is copying.
    public static func leftCopy(in folder: String) -> String? {
        let path = folder + "/" + staging
        return access(path, F_OK) == 0 && !isThere(in: folder) ? path : nil
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
