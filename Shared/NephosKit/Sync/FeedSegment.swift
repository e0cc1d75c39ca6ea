import NephosCore
import NephosWire

/// A stretch of a scope's feed: what led from one head to the next.
struct FeedSegment: Equatable {
    var previous: UInt64
    var token: ChangeToken
    var changes: [WireChange]
    /// The bytes of the ``SetDigest/mark`` at `token`; empty: not told.
    var digest: [UInt8] = []

    enum Position {
        /// Continues what is here.
        case next
        /// Everything in it is here already.
        case seen
        /// Something before it is missing.
        case ahead
        /// Belongs to another epoch, or leads nowhere.
        case foreign
    }

    /// What became of a segment that was to be brought in.
    enum Place: Equatable {
        /// - Parameter differs: The copy's digest is another than the segment's.
        case applied(differs: Bool)
        case seen
        case ahead
        case foreign
        /// It continues the copy, and something in it cannot be read here.
        case unreadable
    }

    func position(at head: ChangeToken) -> Position {
        if token.epoch != head.epoch { return .foreign }
        if token.sequence <= head.sequence { return .seen }
        if previous > token.sequence { return .foreign }
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
