public import NephosCore

extension Feed {
    public func reply(
        to operation: OperationID, by principal: String, request: RequestFingerprint
    ) throws -> [UInt8]? {
        // Nearly every operation is new.
        guard operations?.mayKnow(operation) != false,
            let known = try reply(to: operation, by: Self.number(of: principal))
        else { return nil }
        guard known.request == request else { throw CloudError.operationReused }
        return known.reply
    }

    private func reply(
        to operation: OperationID, by principal: Int64
    ) throws -> (reply: [UInt8], request: RequestFingerprint)? {
        if let waiting = waitingReplies.first(where: { $0.operation == operation && $0.principal == principal }) {
            return (waiting.reply, waiting.request)
        }
        let stored = try first(FeedStatements.reply, [.blob(operation.bytes), .integer(principal)]) {
            ($0.blob(0), RequestFingerprint(rawValue: UInt64(bitPattern: $0.integer(1))))
        }
        return try stored ?? OperationPacks.reply(to: operation, by: principal, looked: &packsLooked, in: transaction)
    }

    public func remember(
        _ reply: [UInt8], of operation: OperationID, by principal: String, request: RequestFingerprint
    ) throws {
        operations?.note(operation)
        let waiting = WaitingReply(
            operation: operation, principal: Self.number(of: principal), request: request, reply: reply)
        guard reply.count <= OperationPacks.replyBytesMax else { return try store(waiting) }
        waitingReplies.append(waiting)
    }

    /// Stores what waits, together.
    func flushReplies() throws {
        guard !waitingReplies.isEmpty else { return }
        for single in try OperationPacks.store(waitingReplies, in: transaction) { try store(single) }
        // Not before: what failed in the middle of a group fails its end, too, and not one request alone.
        waitingReplies = []
    }

    private func store(_ waiting: WaitingReply) throws {
        try execute(
            FeedStatements.remember,
            [
                .blob(waiting.operation.bytes), .integer(waiting.principal),
                .integer(Int64(bitPattern: waiting.request.rawValue)), .blob(waiting.reply),
            ])
    }

    /// No operation whose reply is stored has a greater id; nil: there is none.
    public static func newestOperation(in transaction: any Transaction) throws -> OperationID? {
        let single = try transaction.first(FeedStatements.newestOperation) { OperationID(bytes: $0.blob(0)) } ?? nil
        guard let packed = try OperationPacks.bound(in: transaction) else { return single }
        return single.map { max($0, packed) } ?? packed
    }

    /// FNV-1a of the principal. Eight bytes are enough: a reply is found only
    /// together with 122 bits of operation id, which its caller alone knows.
    private static func number(of principal: String) -> Int64 {
        Int64(bitPattern: FNV1a.hash(principal))
    }

    /// Forgets replies of operations older than the id (``OperationID/lowerBound(at:)``),
    /// at most `limit` in one call, so that no group waits long.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    public func pruneOperations(before operation: OperationID, limit: Int) throws -> Bool {
        let limit = max(1, limit)
        try flushReplies()
        let morePacks = try OperationPacks.prune(before: operation, limit: limit, in: transaction)
        return try execute(
            FeedStatements.pruneOperations, [.blob(operation.bytes), .integer(Int64(limit))]) == limit || morePacks
    }
}
