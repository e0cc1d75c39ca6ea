public import Core
private import Foundation
private import Synchronization

/// Keeps a file of defaults and a key-value store the same, both ways, as apps
/// do with `NSUserDefaults`.
///
/// At the start the store wins for the keys that it has, and the file fills in
/// the others. From then on each side's changes go to the other. The file is a
/// JSON object or an XML property list (by its name's end, `.json` or not), and
/// is replaced as a whole; it keeps its owner and its mode, and a symbolic link stays one. JSON has no dates and no
/// data; such keys are left out of a JSON file, and stay in the store. So are texts with control characters in XML.
///
/// What is in the file and has no place in a store (an integer beyond 64 bits, a null, a key that is there twice) ends
/// the mirror with its place and the reason; the file is left alone.
///
/// A file that is gone, empty, or no longer readable says nothing of any key: it ends the mirror with the reason, and
/// deletes nothing. Nor does one that lacks many of its keys at once, unless that was asked for.
public final class DefaultsMirror: Sendable {
    private let store: KeyValueStore
    private let path: String
    private let keys: Set<ItemName>?
    private let interval: Duration
    private let deletesMany: Bool
    /// What both sides had when they last agreed.
    private let agreed = Mutex<[ItemName: PropertyValue]>([:])

    /// Keys that may always be deleted at once.
    public static let deletionsMax = 5
    /// How often a file that cannot be read is looked at again: an editor may just be writing it.
    private static let patience = 8

    /// - Parameters:
    ///   - keys: What is mirrored; nil: every key.
    ///   - interval: How often the file's time is looked at.
    ///   - deletesMany: Whether more than ``deletionsMax`` keys, and more than half of all, may be deleted at once.
    public init(
        store: KeyValueStore, path: String, keys: Set<String>? = nil, interval: Duration = .milliseconds(250),
        deletesMany: Bool = false
    ) {
        self.deletesMany = deletesMany
        self.store = store
        self.path = path
        self.keys = keys.map { Set($0.map { ItemName($0) }) }
        self.interval = interval
    }

    /// Mirrors until the task is cancelled. Waits for the store's first
    /// download, so that the file does not overrule what is not here yet.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` or `.invalidArguments` when the file cannot be
    ///   used, is gone or empty; `.constraintViolation` when it would delete too many keys; and what the store throws
    ///   (`.quotaExceeded` names the limit).
    public func run() async throws(CloudError) {
        while try await !store.status().initialSyncFinished {
            do { try await Task.sleep(for: interval) } catch { return }
        }
        try merge()
        var stamp = try fileStamp()
        var unreadable = 0
        while !Task.isCancelled {
            do { try await Task.sleep(for: interval) } catch { return }
            let now = try fileStamp()
            do throws(Unreadable) {
                // This app's own writes raise no event, so the store is compared each time.
                try exchange(readFile: now != stamp)
                // Taken before the exchange: what is written meanwhile is read next time.
                stamp = now
                unreadable = 0
            } catch {
                unreadable += 1
                if error.isFinal || unreadable > Self.patience { throw error.error }
            }
        }
    }

    /// Why nothing was exchanged.
    struct Unreadable: Error {
        var error: CloudError
        /// Looking again will not help.
        var isFinal: Bool
    }

    /// Brings both sides together once: the store wins for the keys that it has.
    public func merge() throws(CloudError) {
        let theirs = mirrored(try store.values())
        // One that is not there, or empty, as it is made for a mirror, is filled.
        let file = try exists() ? readFile(emptyAllowed: true) : [:]
        let missing = file.filter { theirs[$0.key] == nil }
        if !missing.isEmpty { try write(missing.mapValues { $0 }) }
        let both = theirs.merging(missing) { stored, _ in stored }
        try writeFile(both, ifNot: file)
        agreed.withLock { $0 = both }
    }

    /// Takes what either side has changed since they agreed to the other.
    func exchange(readFile readsFile: Bool) throws(Unreadable) {
        let before = agreed.withLock { $0 }
        var file = representable(before)
        if readsFile {
            do throws(CloudError) { file = try readFile(emptyAllowed: false) } catch {
                throw Unreadable(error: error, isFinal: false)
            }
        }
        do throws(CloudError) { try exchange(before, file, readFile: readsFile) } catch {
            throw Unreadable(error: error, isFinal: true)
        }
    }

    private func exchange(
        _ before: [ItemName: PropertyValue], _ file: [ItemName: PropertyValue], readFile readsFile: Bool
    ) throws(CloudError) {
        var changes: [ItemName: PropertyValue?] = [:]
        // As the file has it: JSON writes the real 2.0 as 2, which is no change.
        let written = try throughFile(representable(before))
        let read = readsFile ? file : written
        for key in Set(read.keys).union(written.keys) where read[key] != written[key] {
            changes[key] = .some(read[key])
        }
        let deletions = changes.count { $0.value == nil }
        guard deletesMany || deletions <= Self.deletionsMax || deletions * 2 <= written.count else {
            throw CloudError(
                .constraintViolation,
                "The file lacks more than half of its keys. Nothing was deleted. If that is meant, mirror with --delete-many.",
                details: ["path": path, "deletions": "\(deletions)", "keys": "\(written.count)"])
        }
        if !changes.isEmpty { try write(changes) }
        let now = mirrored(try store.values())
        try writeFile(now, ifNot: file)
        agreed.withLock { $0 = now }
    }

    private func write(_ changes: [ItemName: PropertyValue?]) throws(CloudError) {
        try store.write(changes.sorted { $0.key < $1.key }.map { LocalWrite(key: $0.key, value: $0.value) })
    }

    private func mirrored(_ values: [ItemName: PropertyValue]) -> [ItemName: PropertyValue] {
        guard let keys else { return values }
        return values.filter { keys.contains($0.key) }
    }

    // MARK: The file

    private var isJSON: Bool { path.hasSuffix(".json") }

    /// When the file was written, and which it is.
    private func fileStamp() throws(CloudError) -> [Int64] {
        var status = stat()
        guard stat(path, &status) == 0 else {
            guard errno == ENOENT else { throw unusable }
            return []
        }
        return [
            Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec), Int64(status.st_size), Int64(status.st_ino),
        ]
    }

    private var unusable: CloudError {
        CloudError(.storageFailure, "The file of defaults cannot be used.", details: ["path": path])
    }

    private func representable(_ values: [ItemName: PropertyValue]) -> [ItemName: PropertyValue] {
        values.filter { DefaultsFile.holds($0.key, $0.value, json: isJSON) }
    }

    private func throughFile(_ values: [ItemName: PropertyValue]) throws(CloudError) -> [ItemName: PropertyValue] {
        try DefaultsFile.decode(DefaultsFile.encode(values, json: isJSON), json: isJSON)
    }

    private func exists() throws(CloudError) -> Bool { try !fileStamp().isEmpty }

    private func readFile(emptyAllowed: Bool) throws(CloudError) -> [ItemName: PropertyValue] {
        guard try exists() else {
            throw CloudError(
                .storageFailure, "The file of defaults is gone. Nothing was deleted; put it back, and mirror again.",
                details: ["path": path])
        }
        let data: Data
        do { data = try Data(contentsOf: URL(fileURLWithPath: path)) } catch { throw unusable }
        guard emptyAllowed || !data.isEmpty else {
            throw CloudError(
                .invalidArguments,
                "The file of defaults is empty. Nothing was deleted; put it right, and mirror again.",
                details: ["path": path])
        }
        do throws(CloudError) { return mirrored(try DefaultsFile.decode(data, json: isJSON)) } catch {
            var details = error.details
            details["path"] = path
            details["format"] = isJSON ? "JSON object" : "property list"
            details["reason"] = details["reason"] ?? error.message
            throw CloudError(
                .invalidArguments,
                "The file of defaults cannot be taken over as it is. It was left alone, and nothing was deleted; put it right, and mirror again.",
                details: details)
        }
    }

    private func writeFile(_ values: [ItemName: PropertyValue], ifNot current: [ItemName: PropertyValue])
        throws(CloudError)
    {
        let values = representable(values)
        guard values != current || !FileManager.default.fileExists(atPath: path) else { return }
        do {
            // Keys that are not mirrored stay as they are.
            var all = values
            if keys != nil, let data = FileManager.default.contents(atPath: path) {
                for (key, value) in try DefaultsFile.decode(data, json: isJSON) where mirrored([key: value]).isEmpty {
                    all[key] = value
                }
            }
            try AtomicFile.replace(path, with: DefaultsFile.encode(all, json: isJSON))
        } catch {
            if let error = error as? CloudError { throw error }
            var failure = unusable
            failure.details["reason"] = (error as? POSIXError).map { String(cString: strerror($0.code.rawValue)) }
            throw failure
        }
    }
}
