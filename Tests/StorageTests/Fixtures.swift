import NephosCore
import NephosStorage

#if canImport(Musl)
    import Musl
#else
    import Glibc
#endif

/// A directory of its own for each test, removed with it.
final class TemporaryDirectory {
    let path: String

    init() {
        var template = Array("/tmp/storage-tests-XXXXXX".utf8CString)
        path = template.withUnsafeMutableBufferPointer { buffer in
            guard let start = buffer.baseAddress, let made = mkdtemp(start) else { return "/tmp" }
            return String(cString: made)
        }
    }

    func file(_ name: String) -> String { path + "/" + name }

    deinit {
        guard path != "/tmp", let directory = opendir(path) else { return }
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            unlink(file(name))
        }
        closedir(directory)
        rmdir(path)
    }
}

func bytes(of path: String) -> [UInt8] {
    guard let file = fopen(path, "r") else { return [] }
    defer { fclose(file) }
    var result: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while true {
        let count = fread(&buffer, 1, buffer.count, file)
        if count == 0 { return result }
        result += buffer[..<count]
    }
}

func write(_ bytes: [UInt8], to path: String) {
    guard let file = fopen(path, "w") else { return }
    fwrite(bytes, 1, bytes.count, file)
    fclose(file)
}

func mode(of path: String) -> UInt32 {
    var status = stat()
    return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
}

extension SQLiteEngine {
    /// A new epoch, as the host begins one.
    func raiseEpoch(shownBy token: ChangeToken = .zero) throws {
        let now = Timestamp(milliseconds: 1_750_000_000_000)
        guard let key = SipHash(key: [UInt8](repeating: 3, count: 16)) else { return }
        try write { transaction in
            let history = try Feed.beginRun(in: transaction, key: key, at: now, random: 1)
            _ = try Feed.beginEpoch(in: transaction, shownBy: token, history, at: now, random: 2)
        }
    }

    /// A migrated engine in memory.
    static func fresh() throws -> SQLiteEngine {
        let engine = try inMemory()
        try engine.migrate(ChangeFeedSchema.migrations)
        return engine
    }

    /// A migrated engine over a file.
    static func open(_ path: String) throws -> SQLiteEngine {
        let engine = try SQLiteEngine(path: path)
        try engine.migrate(ChangeFeedSchema.migrations)
        return engine
    }

    /// One group. With a cache, as a host runs it.
    @discardableResult
    func group<Result>(
        at time: UInt64 = 1000, cache: FeedCache = FeedCache(), _ body: (Feed) throws -> Result
    ) throws -> Result {
        do {
            return try write { transaction in
                let feed = Feed(over: transaction, at: Timestamp(milliseconds: time), cache: cache)
                let result = try body(feed)
                try feed.flush()
                return result
            }
        } catch {
            cache.removeAll()
            throw error
        }
    }

    func all(_ scope: ScopeName, after sequence: UInt64 = 0) throws -> [FeedItem] {
        try group { feed in
            var items: [FeedItem] = []
            try feed.items(scope, after: sequence) {
                items.append($0)
                return true
            }
            return items
        }
    }
}

func item(_ name: ItemName, _ text: String, deleted: Bool = false) -> FeedItem {
    let body = Array(text.utf8)
    return FeedItem(
        name: name, deleted: deleted, digest: SetDigest(ofItem: Array(name.utf8) + [0] + body),
        size: body.count, body: deleted ? [] : body)
}

let notes = ScopeName("account_a", "notes")

extension ScopeName {
    init(_ account: String, _ path: ItemName) { self.init(AccountID(account), path) }
}

/// The code a body fails with, nil if it does not fail.
func code(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return CloudError(wrapping: error).code }
    return nil
}
