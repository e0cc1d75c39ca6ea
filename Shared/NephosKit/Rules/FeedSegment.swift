import Core
import Wire

/// A stretch of a store's feed: what led from one head to the next.
struct FeedSegment {
    var previous: UInt64
    var token: ChangeToken
    var items: [KeyValueItem]
    /// The bytes of the ``SetDigest/mark`` at `token`; empty: not told.
    var digest: [UInt8] = []

    enum Position {
        /// Continues what is here.
        case next
        /// Everything in it is here already.
        case seen
        /// Something before it is missing.
        case ahead
        /// Belongs to another epoch.
        case foreign
    }

    func position(at head: ChangeToken) -> Position {
        if token.epoch != head.epoch { return .foreign }
        if token.sequence <= head.sequence { return .seen }
        return previous <= head.sequence ? .next : .ahead
    }
}

/// Segments that arrived before the one they continue: a push's reply and a
/// notification travel on different connections and may overtake each other.
struct AheadSegments {
    static let countMax = 256
    private var segments: [FeedSegment] = []

    var isEmpty: Bool { segments.isEmpty }

    /// Keeps the segment; past the limit the oldest is left out, and a pull brings it.
    mutating func keep(_ segment: FeedSegment) {
        segments.append(segment)
        if segments.count > Self.countMax { segments.removeFirst() }
    }

    /// The segment that continues this head, if it is here. Drops what the head has passed.
    mutating func next(after head: ChangeToken) -> FeedSegment? {
        segments.removeAll { [.seen, .foreign].contains($0.position(at: head)) }
        guard let index = segments.firstIndex(where: { $0.position(at: head) == .next }) else { return nil }
        return segments.remove(at: index)
    }

    mutating func clear() { segments = [] }
}
