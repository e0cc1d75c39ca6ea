public import Foundation
internal import GRDB
public import NephosCore
internal import NephosFiles
private import Synchronization

/// Keeps a file of defaults and a key-value store the same, both ways, as apps
/// do with `NSUserDefaults`.
///
/// Each side's changes go to the other, also those that were made while no mirror ran: the home keeps digests of what
/// was written to the file last. A value edited in the file since then replaces the store's, which stays in the
/// history; an unedited value yields to the store. A key missing from the file is deleted only if the file had it
/// before, with the store's present value. A file that was never mirrored fills in the keys that the store does not
/// have; where both have a key with different values, the mirror ends with an error, unless `prefers` names a side. A
/// missing or empty file is filled from the store.
///
/// The file is a JSON object or an XML property list (by its name's end, `.json` or not), and
/// is replaced as a whole; it keeps its owner and its mode, and a symbolic link stays one. JSON has no dates and no
/// data; such keys are left out of a JSON file, and stay in the store. So are texts with control characters in XML.
///
/// A value that a store cannot hold (an integer of more than 64 bits, a null, a repeated key) ends the mirror with its
/// place and the reason; the file stays as it is.
///
/// A file that becomes missing, empty or unreadable ends the mirror with the reason, and deletes nothing. So does a
/// file that loses many of its keys at once, unless `deletesMany` allows it.
public final class DefaultsMirror: Sendable {
    private let store: KeyValueStore
    private let path: String
    private let keys: Set<ItemName>?
    private let interval: Duration
    private let deletesMany: Bool
    private let prefers: Side?
    /// What the file had when both sides last agreed.
    private let agreed = Mutex<[ItemName: PropertyValue]>([:])
    /// Who was signed in when the mirror began.
    private let account = Mutex<UbiquityIdentityToken?>(nil)
    /// Whether the home knows that.
    private let isNoted = Mutex(false)
    /// Called between two things that are saved; a test ends the mirror there by throwing.
    private let fault: (@Sendable (String) throws -> Void)?

    /// One of the two sides of a mirror.
    public enum Side: String, Sendable, CaseIterable {
        /// The file of defaults.
        case file
        /// The key-value store.
        case store
    }

    /// Keys that may always be deleted at once.
    public static let deletionsMax = 5
    /// How often a file that cannot be read is looked at again: an editor may just be writing it.
    private static let patience = 8

    /// - Parameters:
    ///   - store: The key-value store that is mirrored.
    ///   - file: The file of defaults.
    ///   - keys: The keys to mirror; nil: every key.
    ///   - interval: How often the file's modification time is checked.
    ///   - deletesMany: Whether more than ``deletionsMax`` keys, and more than half of all, may be deleted at once.
    ///   - prefers: The side whose value stays if both have a key and the file's former value is unknown; nil: the
    ///     mirror ends, and changes nothing.
    public convenience init(
        store: KeyValueStore, file: URL, keys: Set<String>? = nil, interval: Duration = .milliseconds(250),
        deletesMany: Bool = false, prefers: Side? = nil
    ) {
        self.init(
            store: store, file: file, keys: keys, interval: interval, deletesMany: deletesMany, prefers: prefers,
            fault: nil)
    }

    init(
        store: KeyValueStore, file: URL, keys: Set<String>? = nil, interval: Duration = .milliseconds(250),
        deletesMany: Bool = false, prefers: Side? = nil, fault: (@Sendable (String) throws -> Void)?
    ) {
        self.fault = fault ?? store.session.fault
        self.deletesMany = deletesMany
        self.prefers = prefers
        self.store = store
        path = (try? LocalPath(file).text) ?? ""
        self.keys = keys.map { Set($0.map { ItemName($0) }) }
        self.interval = interval
    }

    /// Mirrors until the task is cancelled. Waits for the store's first
    /// download, so that the file does not overrule what is not here yet.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn` when the account changes; `.deviceRevoked` once the server has
    ///   turned this device away, since nothing goes either way from then on; `.storageFailure` or `.invalidArguments`
    ///   when the file cannot be used, is gone or empty; `.constraintViolation` when it would delete too many keys, or
    ///   when it has other values than the store and it is not known which are the newer; and what the store throws
    ///   (`.quotaExceeded` names the limit).
    public func run() async throws(CloudError) { try await run {} }

    /// The same.
    ///
    /// - Parameter begun: Called once both sides are the same: from then on it mirrors.
    package func run(_ begun: @Sendable () -> Void) async throws(CloudError) {
        var account = try store.session.ubiquityIdentityToken
        while true {
            let isFinished = try await store.status().initialSyncFinished
            try requireSignIn()
            let now = try store.session.ubiquityIdentityToken
            // Of the same account as before and after.
            if isFinished, now == account { break }
            account = now
            do { try await Task.sleep(for: interval) } catch { return }
        }
        var stamp = try fileStamp()
        try merge(of: account)
        begun()
        var unreadable = 0
        while !Task.isCancelled {
            do { try await Task.sleep(for: interval) } catch { return }
            // What another account has, or nobody's store, is not what the file is to become.
            guard try store.session.ubiquityIdentityToken == account else { throw accountChanged }
            try requireSignIn()
            let now = try fileStamp()
            do throws(Unreadable) {
                // This app's own writes raise no event, so the store is compared each time.
                // The first merge has made the file: one that is not there is gone.
                try exchange(readFile: now != stamp || now.isEmpty, stamp: now)
                // Taken before the exchange: what is written meanwhile is read next time.
                stamp = now
                unreadable = 0
            } catch {
                unreadable += 1
                if error.isFinal || unreadable > Self.patience { throw error.error }
            }
        }
    }

    /// - Throws: ``CloudError`` once the server has turned this device away.
    private func requireSignIn() throws(CloudError) {
        if let ending = try store.session.account?.ending { throw ending }
    }

    private var accountChanged: CloudError {
        CloudError(
            .notSignedIn, "This device has signed out, or is another account's now. The file was left as it is.",
            details: ["path": path])
    }

    /// Why nothing was exchanged.
    struct Unreadable: Error {
        var error: CloudError
        /// Looking again will not help.
        var isFinal: Bool
    }

    /// Brings both sides together once, as they were left.
    ///
    /// - Throws: ``CloudError`` as ``run()`` does.
    public func merge() throws(CloudError) { try merge(of: store.session.ubiquityIdentityToken) }

    private func merge(of account: UbiquityIdentityToken?) throws(CloudError) {
        self.account.withLock { $0 = account }
        let stamp = try fileStamp()
        // One that is not there, or empty, as it is made for a mirror, is filled.
        let file = stamp.isEmpty ? [:] : try readFile(emptyAllowed: true)
        let shown = try throughFile(representable(mirrored(try store.values())))
        let isBlank = stamp.isEmpty || stamp[Self.sizePlace] == 0
        let changes = isBlank ? [:] : try edits(in: file, against: shown)
        try checkDeletions(changes, of: shown.count)
        try settle(file, changes, stamp)
    }

    /// What of the file is taken over at the start.
    private func edits(
        in file: [ItemName: PropertyValue], against shown: [ItemName: PropertyValue]
    ) throws(CloudError) -> [ItemName: PropertyValue?] {
        let (app, place) = (store.app, place)
        let note = try store.session.local.read { database in
            try MirrorNotes(database, app: app, path: place).read()
        }
        let stored = mirrored(try store.values())
        var edits: [ItemName: PropertyValue?] = [:]
        var unknown: [ItemName] = []
        for key in Set(file.keys).union(shown.keys) where file[key] != shown[key] {
            if let note, note.knows(key) {
                // What another device has changed meanwhile outlives that the key is gone here.
                if file[key] == nil, !note.wrote(shown[key], at: key) { continue }
                if !note.wrote(file[key], at: key) { edits[key] = .some(file[key]) }
            } else if let value = file[key] {
                if stored[key] == nil || prefers == .file {
                    edits[key] = value
                } else if prefers == nil {
                    unknown.append(key)
                }
            }
        }
        guard unknown.isEmpty else { throw undecided(unknown.sorted()) }
        return edits
    }

    private static let namedMax = 10

    private func undecided(_ keys: [ItemName]) -> CloudError {
        let named = keys.prefix(Self.namedMax).map(\.rawValue).joined(separator: ", ")
        return CloudError(
            .constraintViolation,
            "The file and the store have different values, and it is not known which are the newer. Nothing was changed. Mirror with --prefer file or --prefer store, or remove the file.",
            details: [
                "path": path,
                "different": keys.count > Self.namedMax ? "\(named), and \(keys.count - Self.namedMax) more" : named,
            ])
    }

    private func checkDeletions(_ changes: [ItemName: PropertyValue?], of count: Int) throws(CloudError) {
        let deletions = changes.count { $0.value == nil }
        guard deletesMany || deletions <= Self.deletionsMax || deletions * 2 <= count else {
            throw CloudError(
                .constraintViolation,
                "The file lacks more than half of its keys. Nothing was deleted. If that is meant, mirror with --delete-many.",
                details: ["path": path, "deletions": "\(deletions)", "keys": "\(count)"])
        }
    }

    /// Takes what either side has changed since they agreed to the other.
    ///
    /// - Parameter stamp: Of the file as it was looked at; nil: now.
    func exchange(readFile readsFile: Bool, stamp seen: [Int64]? = nil) throws(Unreadable) {
        let written = agreed.withLock { $0 }
        var file = written
        let stamp: [Int64]
        do throws(CloudError) {
            if let seen { stamp = seen } else { stamp = try fileStamp() }
            if readsFile { file = try readFile(emptyAllowed: false) }
        } catch { throw Unreadable(error: error, isFinal: false) }
        do throws(CloudError) {
            var changes: [ItemName: PropertyValue?] = [:]
            for key in Set(file.keys).union(written.keys) where file[key] != written[key] {
                changes[key] = .some(file[key])
            }
            try checkDeletions(changes, of: written.count)
            try settle(file, changes, stamp)
        } catch { throw Unreadable(error: error, isFinal: true) }
    }

    /// Puts what was edited into the store, and what the store has then into the file.
    ///
    /// In this order: the edits and what the file has are kept in one transaction, with what is about to take its
    /// place; then the file is replaced; then that is noted. Whatever ends this, each value is in the store or its
    /// history, and what nobody has edited is known as such.
    ///
    /// - Parameters:
    ///   - file: What it has.
    ///   - stamp: Of the file when it was read: of one that was written since, nothing is overwritten.
    private func settle(
        _ file: [ItemName: PropertyValue], _ changes: [ItemName: PropertyValue?], _ stamp: [Int64]
    ) throws(CloudError) {
        let covers = keys.map { $0.sorted() }
        let (app, place) = (store.app, place)
        let isFile = !stamp.isEmpty
        // Most often nothing has changed, and nothing is written for that.
        let before = try shown(in: store.values())
        let known = agreed.withLock { $0 == file } && isNoted.withLock { $0 }
        guard !changes.isEmpty || !known || before != file || !isFile else { return }

        let writes = changes.sorted { $0.key < $1.key }.map { LocalWrite(key: $0.key, value: $0.value) }
        let now = try store.write(writes) { database, values in
            try self.requireSameAccount(database)
            let now = try self.shown(in: values)
            try MirrorNotes(database, app: app, path: place).write(
                covers: covers, last: MirrorNote.Content(file), next: now == file ? nil : MirrorNote.Content(now))
            return now
        }
        agreed.withLock { $0 = file }
        isNoted.withLock { $0 = true }
        guard now != file || !isFile else { return }
        try step("mirror.write")
        // Somebody was quicker: that is read first.
        guard try writeFile(now, ifStill: stamp) else { return }
        agreed.withLock { $0 = now }
        isNoted.withLock { $0 = false }
        try step("mirror.note")
        try store.session.local.write {
            try self.requireSameAccount($0)
            try MirrorNotes($0, app: app, path: place).write(covers: covers, last: MirrorNote.Content(now), next: nil)
        }
        isNoted.withLock { $0 = true }
    }

    /// Another may sign in at any time: what the file has is not theirs, nor what they have the file's.
    private func requireSameAccount(_ database: Database) throws {
        guard try Facts(database).session?.ubiquityIdentityToken == account.withLock({ $0 }) else {
            throw accountChanged
        }
    }

    /// What the file is to have of these.
    private func shown(in values: [ItemName: PropertyValue]) throws(CloudError) -> [ItemName: PropertyValue] {
        try throughFile(representable(mirrored(values)))
    }

    private func step(_ name: String) throws(CloudError) {
        do { try fault?(name) } catch { throw CloudError(wrapping: error) }
    }

    private func mirrored(_ values: [ItemName: PropertyValue]) -> [ItemName: PropertyValue] {
        guard let keys else { return values }
        return values.filter { keys.contains($0.key) }
    }

    // MARK: The file

    private var isJSON: Bool { path.hasSuffix(".json") }

    /// Where a file's stamp has its size.
    private static let sizePlace = 2

    /// When the file was written, how large, and which it is; empty: there is none.
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

    /// Names the file in the home's notes: where it really is, and the form in which it is read.
    private var place: String {
        (isJSON ? "json " : "plist ") + URL(fileURLWithPath: path).standardizedFileURL.resolvingSymlinksInPath().path
    }

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

    /// - Returns: Whether it was written; false: it is not as it was when it was read.
    private func writeFile(
        _ values: [ItemName: PropertyValue], ifStill stamp: [Int64]
    ) throws(CloudError) -> Bool {
        do {
            // Keys that are not mirrored stay as they are.
            var all = values
            if keys != nil, let data = FileManager.default.contents(atPath: path) {
                for (key, value) in try DefaultsFile.decode(data, json: isJSON) where mirrored([key: value]).isEmpty {
                    all[key] = value
                }
            }
            let data = DefaultsFile.encode(all, json: isJSON)
            return try AtomicFile.replace(path, with: data) {
                try step("mirror.rename")
                return try fileStamp() == stamp
            }
        } catch {
            if let error = error as? CloudError { throw error }
            var failure = unusable
            failure.details["reason"] = (error as? POSIXError).map { String(cString: strerror($0.code.rawValue)) }
            throw failure
        }
    }
}
