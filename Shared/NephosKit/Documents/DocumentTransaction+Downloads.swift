import Foundation
import GRDB
import NephosCore
import NephosWire

/// What somebody wants to have here, and how far that is. `document_downloads` has a row for each item that is kept
/// downloaded (`is_pinned`), and for each whose content is to come (`is_requested`).
extension DocumentTransaction {
    static let downloads = """
        CREATE TABLE document_downloads (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            is_pinned INTEGER NOT NULL DEFAULT 0, is_requested INTEGER NOT NULL DEFAULT 0,
            position INTEGER NOT NULL DEFAULT 0, root BLOB, file BLOB, percent INTEGER NOT NULL DEFAULT 0,
            attempts INTEGER NOT NULL DEFAULT 0, next_attempt INTEGER NOT NULL DEFAULT 0, error BLOB,
            beats INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_downloads_by_turn ON document_downloads (account, container, attempts, position)
            WHERE is_requested;
        CREATE INDEX document_downloads_by_time ON document_downloads (account, container, next_attempt)
            WHERE is_requested AND next_attempt > 0;

        """

    /// Items that are kept downloaded, of one container.
    static let pinsMax = 10_000

    /// What is looked up once.
    struct Wishes {
        var pins: Set<DocumentID>
        /// Whether any content is to come.
        var hasRequests: Bool
    }

    func wishes() throws -> Wishes {
        if let wishes = known.wishes { return wishes }
        let pins = try String.fetchAll(
            cached("SELECT item FROM document_downloads WHERE account = ?1 AND container = ?2 AND is_pinned"),
            arguments: arguments())
        let hasRequests = try Bool.fetchOne(
            cached("SELECT 1 FROM document_downloads WHERE account = ?1 AND container = ?2 AND is_requested LIMIT 1"),
            arguments: arguments())
        let wishes = Wishes(pins: Set(pins.compactMap { DocumentID($0) }), hasRequests: hasRequests ?? false)
        known.wishes = wishes
        return wishes
    }

    /// The item, or the nearest folder that it is in, that is kept downloaded; nil: none is.
    func pin(over id: DocumentID) throws -> DocumentID? {
        let pins = try wishes().pins
        guard !pins.isEmpty else { return nil }
        var next: DocumentID? = id
        for _ in 0...DocumentLimits.depthMax + 1 {
            guard let here = next else { return nil }
            if pins.contains(here) { return here }
            next = here == .documents ? .top : here == .top ? nil : try document(here)?.parent
        }
        return nil
    }

    /// Whether what is here of the item has to stay.
    func isWanted(_ id: DocumentID) throws -> Bool {
        if try wishes().hasRequests, try request(of: id) != nil { return true }
        return try pin(over: id) != nil && isInPlace(id)
    }

    /// Whether the item is where somebody finds it: what lies in the trash is there to go.
    func isInPlace(_ id: DocumentID) throws -> Bool {
        try document(id).flatMap { try path(of: $0) }?.isInTrash == false
    }

    /// Whether the newest content of the item is here.
    func isHere(_ item: HeldDocument) throws -> Bool {
        guard item.wire.hasContent, !item.wire.content.isInline else { return true }
        return try copies.has(item.wire.content) || heldVersion(of: item.wire.content) != nil
    }

    /// How much of the item is on this device.
    func download(of item: HeldDocument) throws -> DocumentDownload {
        var download = DocumentDownload()
        download.isPinned = try pin(over: item.id) != nil
        guard try !isHere(item) else { return download }
        download.status = try copies.lastCopy(heldBy: item.id.description) != nil ? .downloaded : .notDownloaded
        download.percent = 0
        guard try wishes().hasRequests, let request = try request(of: item.id) else { return download }
        download.isRequested = true
        download.percent = request.root == item.wire.content.root ? request.percent : 0
        download.problem = request.error?.message
        return download
    }

    // MARK: Requests

    /// A content that is to come.
    struct Request {
        var item: DocumentID
        /// Which content comes, and into which file; nil: none has begun to.
        var root: Data?
        var file: DocumentID?
        var percent = 0
        var attempts = 0
        var error: CloudError?
    }

    func request(of item: DocumentID) throws -> Request? {
        try Row.fetchOne(
            cached(
                "SELECT item, root, file, percent, attempts, error FROM document_downloads "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_requested"),
            arguments: arguments(item.description)
        ).flatMap(Self.request)
    }

    private static func request(_ row: Row) -> Request? {
        DocumentID(row["item"] as String).map { item in
            Request(
                item: item, root: row["root"], file: (row["file"] as Data?).flatMap { DocumentID(bytes: $0) },
                percent: row["percent"], attempts: row["attempts"],
                error: (row["error"] as Data?).flatMap { StoredError.decode($0) })
        }
    }

    // A content that does not come keeps no other away: those that have failed least often come first. Each is begun
    // by a search of these, however many wait. How often something has come of one, whoever waits for it sees.
    /// Those that may be begun: the first asked for first, after those that have failed less often; and when the next
    /// may.
    ///
    /// - Parameter pauseMax: Whoever waits longer than this waits because the clock was wrong.
    func requests(
        at now: Timestamp, pauseMax: Duration, limit: Int
    ) throws -> (due: [Request], soonest: Timestamp?) {
        let (now, end) = (Int64(clamping: now.milliseconds), Int64(clamping: now.advanced(by: pauseMax).milliseconds))
        let due = try Row.fetchAll(
            cached(
                "SELECT item, root, file, percent, attempts, error FROM document_downloads "
                    + "INDEXED BY document_downloads_by_turn WHERE account = ?1 "
                    + "AND container = ?2 AND is_requested AND (next_attempt <= ?3 OR next_attempt > ?4) "
                    + "AND item NOT IN (SELECT item FROM document_pauses WHERE account = ?1 AND container = ?2) "
                    + "ORDER BY attempts, position LIMIT ?5"),
            arguments: arguments(now, end, limit)
        ).compactMap(Self.request)
        let soonest = try Int64.fetchOne(
            cached(
                "SELECT min(next_attempt) FROM document_downloads WHERE account = ?1 AND container = ?2 "
                    + "AND is_requested AND next_attempt > 0 AND next_attempt > ?3 AND next_attempt <= ?4"),
            arguments: arguments(now, end))
        return (due, soonest.map { Timestamp(milliseconds: UInt64(clamping: $0)) })
    }

    /// Items whose contents are to come.
    func requestedDocuments() throws -> [HeldDocument] {
        try String.fetchAll(
            cached("SELECT item FROM document_downloads WHERE account = ?1 AND container = ?2 AND is_requested"),
            arguments: arguments()
        ).compactMap { try DocumentID($0).flatMap { try document($0) } }
    }

    /// Has the newest content of the item come, unless it is here.
    ///
    /// - Returns: Whether it is to come.
    @discardableResult
    func requestDownload(of item: HeldDocument) throws -> Bool {
        guard try !isHere(item) else { return false }
        let last =
            try known.lastPosition
            ?? Int64.fetchOne(cached("SELECT coalesce(max(position), 0) FROM document_downloads")) ?? 0
        let position = last + 1
        known.lastPosition = position
        try cached(
            "INSERT INTO document_downloads (account, container, item, is_requested, position) "
                + "VALUES (?1, ?2, ?3, 1, ?4) ON CONFLICT (account, container, item) "
                + "DO UPDATE SET is_requested = 1, attempts = 0, next_attempt = 0, error = NULL"
        ).execute(arguments: arguments(item.id.description, position))
        known.wishes = nil
        try touch(item.id.name)
        return true
    }

    /// The content of this root comes, into this file.
    func begin(_ request: Request, root: Data, file: DocumentID) throws {
        try cached(
            "UPDATE document_downloads SET root = ?4, file = ?5, percent = 0 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3"
        ).execute(arguments: arguments(request.item.description, root, file.wire))
    }

    /// The next content of the item is another than the one that came.
    func beginAnew(_ item: DocumentID) throws {
        try cached(
            "UPDATE document_downloads SET root = NULL, file = NULL, percent = 0 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_requested"
        ).execute(arguments: arguments(item.description))
    }

    /// Something has come of the content, if only some bytes.
    func beat(ofDownload item: DocumentID) throws {
        try cached(
            "UPDATE document_downloads SET beats = beats + 1 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_requested"
        ).execute(arguments: arguments(item.description))
    }

    /// Rises whenever something has come of any content that is to come.
    func beats() throws -> Int64 {
        try Int64.fetchOne(
            cached(
                "SELECT coalesce(sum(beats), 0) FROM document_downloads "
                    + "WHERE account = ?1 AND container = ?2 AND is_requested"),
            arguments: arguments()) ?? 0
    }

    func setPercent(_ percent: Int, ofDownload item: DocumentID) throws {
        try cached(
            "UPDATE document_downloads SET percent = ?4, error = NULL "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_requested"
        ).execute(arguments: arguments(item.description, percent))
        try touch(item.name)
    }

    func setFailure(_ error: CloudError, ofDownload item: DocumentID, _ retry: Retry, next: Timestamp) throws {
        try cached(
            "UPDATE document_downloads SET attempts = ?6, next_attempt = ?4, error = ?5 "
                + "WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_requested"
        ).execute(
            arguments: arguments(
                item.description, Int64(clamping: next.milliseconds), StoredError.encode(error), retry.attempts))
        try touch(item.name)
    }

    /// What failed may succeed by now.
    func hastenDownloads() throws {
        try cached(
            "UPDATE document_downloads SET next_attempt = 0 WHERE account = ?1 AND container = ?2 AND is_requested"
        )
        .execute(arguments: arguments())
    }

    /// The content has come, or is not to come any more.
    ///
    /// - Returns: The file that it came into; nil: it has none.
    @discardableResult
    func endRequest(of item: DocumentID) throws -> DocumentID? {
        guard let request = try request(of: item) else { return nil }
        try cached(
            "UPDATE document_downloads SET is_requested = 0, root = NULL, file = NULL, percent = 0, attempts = 0, "
                + "beats = 0, next_attempt = 0, error = NULL WHERE account = ?1 AND container = ?2 AND item = ?3"
        ).execute(arguments: arguments(item.description))
        try cached(
            "DELETE FROM document_downloads WHERE account = ?1 AND container = ?2 AND item = ?3 AND is_pinned = 0"
        ).execute(arguments: arguments(item.description))
        known.wishes = nil
        try copies.weigh(heldBy: item.description)
        try touch(item.name)
        return request.file
    }

    // MARK: Pins

    /// Keeps the item downloaded, a folder with all that comes to be in it; or does so no longer.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`.
    func setPinned(_ id: DocumentID, _ isPinned: Bool) throws {
        if isPinned {
            guard try wishes().pins.contains(id) || wishes().pins.count < Self.pinsMax else {
                throw CloudError(
                    .limitExceeded, "Too many items are kept downloaded. Keep the folder that they are in.",
                    details: ["maximum": "\(Self.pinsMax)"])
            }
            try cached(
                "INSERT INTO document_downloads (account, container, item, is_pinned) VALUES (?1, ?2, ?3, 1) "
                    + "ON CONFLICT (account, container, item) DO UPDATE SET is_pinned = 1"
            ).execute(arguments: arguments(id.description))
        } else {
            try cached(
                "UPDATE document_downloads SET is_pinned = 0 WHERE account = ?1 AND container = ?2 AND item = ?3"
            ).execute(arguments: arguments(id.description))
            try cached(
                "DELETE FROM document_downloads WHERE account = ?1 AND container = ?2 AND item = ?3 "
                    + "AND is_pinned = 0 AND is_requested = 0"
            ).execute(arguments: arguments(id.description))
            try copies.weigh()
        }
        known.wishes = nil
    }
}
