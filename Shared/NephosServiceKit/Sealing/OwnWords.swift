public import NephosCore
internal import NephosStorage

/// What a service says of who has done something, and when, as the bytes that it seals: after a restore devices offer what
/// was lost with those words, and the service knows them again for its own.
///
/// Nobody else can make the seal. It holds for what was sealed alone, and only for what lies before the present epoch, or was in
/// quarantine: what else was done since is not lost, and no device does it again under another's name.
public struct OwnWords {
    private var bytes: [UInt8]

    /// - Parameters:
    ///   - service: Whose words they are.
    ///   - scope: What they are said of; its owner and its path are sealed.
    public init(_ service: ServiceName, of scope: ScopeName) {
        bytes = [UInt8](service.rawValue.utf8)
        add(scope.owner.rawValue)
        add(scope.path.rawValue)
    }

    // With their lengths, so that no two things have the same bytes.

    public mutating func add(_ bytes: some Collection<UInt8>) {
        add(Int64(bytes.count))
        self.bytes += bytes
    }

    public mutating func add(_ text: String) { add(text.utf8) }

    public mutating func add(_ number: Int64) { withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }

    /// - Returns: 0: the service has no key.
    public func seal(in transaction: any HandlerTransaction) throws -> UInt64 { try transaction.seal(bytes) ?? 0 }

    /// Whether the service has said this, in whichever history: of what was here, and did not open.
    public func areOwn(_ seal: UInt64, in transaction: any HandlerTransaction) throws -> Bool {
        try seal != 0 && seal == self.seal(in: transaction)
    }

    /// Whether the service has said this in a history that it has lost.
    ///
    /// - Parameters:
    ///   - time: When it was done, by these words: nanoseconds since 1970.
    ///   - partition: The scope's.
    public func areOwn(
        _ seal: UInt64, at time: Int64, ofPartition partition: Int, in transaction: any HandlerTransaction,
        now: Timestamp
    ) throws -> Bool {
        guard seal != 0, time <= now.nanoseconds, try time < transaction.epochBegan(ofPartition: partition) else {
            return false
        }
        return try seal == self.seal(in: transaction)
    }
}

extension HandlerTransaction {
    /// When the present epoch began, in nanoseconds since 1970: whatever was stored before lay in the copy that the
    /// database was brought back from, if it was.
    public func epochBegan(ofPartition partition: Int) throws -> Int64 {
        Feed.beginning(ofEpoch: try position(ofPartition: partition).epoch).nanoseconds
    }
}
