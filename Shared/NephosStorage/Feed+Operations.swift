public import NephosCore

extension Feed {
    public func reply(
        to operation: OperationID, by principal: String, request: RequestFingerprint
    ) throws -> [UInt8]? {
        // Nearly every operation is new.
        guard operations?.mayKnow(operation) != false else { return nil }
        return try first(FeedStatements.reply, [.blob(operation.bytes), .integer(Self.number(of: principal))]) {
            guard RequestFingerprint(rawValue: UInt64(bitPattern: $0.integer(1))) == request else {
                throw CloudError.operationReused
            }
            return $0.blob(0)
        }
    }

    public func remember(
        _ reply: [UInt8], of operation: OperationID, by principal: String, request: RequestFingerprint
    ) throws {
        operations?.note(operation)
        try execute(
            FeedStatements.remember,
            [
                .blob(operation.bytes), .integer(Self.number(of: principal)),
                .integer(Int64(bitPattern: request.rawValue)), .blob(reply),
            ])
    }

    /// The greatest id of an operation whose reply is stored.
    public static func newestOperation(in transaction: any Transaction) throws -> OperationID? {
        try transaction.first(FeedStatements.newestOperation) { OperationID(bytes: $0.blob(0)) } ?? nil
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
        return try execute(
            FeedStatements.pruneOperations, [.blob(operation.bytes), .integer(Int64(limit))]) == limit
    }
}
