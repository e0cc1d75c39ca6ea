public import NephosCore

/// Reads a scope, or a partition, page by page: what to ask next, and when all has come.
///
/// Without I/O: its owner sends ``request``, keeps apart what the replies bring,
/// the newest state of each item, and applies it when ``take(_:)`` says that it
/// is whole.
public struct ChangesReading: Sendable {
    /// What is asked for next.
    public private(set) var request: WireReadChanges
    /// Pages that have come, but for the last, and the bytes in them.
    public private(set) var pageCount = 0
    public private(set) var byteCount = 0

    /// - Parameters:
    ///   - after: Sequence 0 asks for everything.
    ///   - held: With sequence 0: the head of what is here already.
    ///   - epochs: With that: by which epochs its reader has come to it, as ``WireReadChanges`` has them.
    public init(
        _ source: WireReadChanges.OneOf_Source, of owner: String = "", after: ChangeToken,
        held: ChangeToken = .zero, epochs: [ChangeToken] = []
    ) {
        request = WireReadChanges()
        request.source = source
        request.owner = owner
        request.after = WireChangeToken(after)
        guard after.sequence == 0, held.sequence > 0 else { return }
        request.held = WireChangeToken(held)
        request.epochs = epochs.map { WireChangeToken($0) }
    }

    public var after: ChangeToken { ChangeToken(request.after) }
    /// Everything is asked for.
    public var isListing: Bool { request.after.sequence == 0 }

    /// Takes note of a page.
    ///
    /// - Returns: Whether it was the last: everything that has come, together, is the state at its token.
    /// - Throws: ``CloudError`` `.malformedRequest`: it does not go on where the one before ended. Begin anew, later.
    public mutating func take(_ reply: WireReadChangesReply) throws(CloudError) -> Bool {
        guard reply.complete == isListing else { throw Self.malformed }
        guard reply.hasPlace else {
            request.clearPlace()
            return true
        }
        // A service that stands still would be asked for ever.
        let (new, old) = (reply.place.token.sequence, request.place.token.sequence)
        // Within one sequence the names say so, where they are told.
        let isBehind = !reply.place.sealed.isEmpty || ItemName(request.place.item) < ItemName(reply.place.item)
        guard new > old || new == old && isBehind,
            new > request.after.sequence
        else { throw Self.malformed }
        pageCount += 1
        byteCount += reply.changes.reduce(0) { $0 + $1.item.utf8.count + $1.body.count }
        request.place = reply.place
        return false
    }

    private static let malformed = CloudError(
        .malformedRequest, "The service's page of changes does not follow the one before.")
}
