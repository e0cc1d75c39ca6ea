public import NephosCore
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

private import struct Foundation.Data

/// Seals where pages of a scope have ended, of which not every item is for everybody who reads it: the item that was
/// looked at last may be one that its reader is not to know of.
public struct PlaceSeal: Sendable {
    private let key: OwnerKey?
    private let context: [UInt8]

    /// - Parameter key: The owner's; nil: there is none, so nothing can be in the scope that is read in pages.
    public init(_ scope: ScopeName, _ key: OwnerKey?) {
        self.key = key
        context = [UInt8]("changes/place\u{0}\(scope.owner.rawValue)\u{0}\(scope.path.rawValue)".utf8)
    }

    /// - Throws: ``CloudError`` `.internalError`: the key is gone, and what it sealed with it.
    func seal(_ place: FeedPlace) throws(CloudError) -> [UInt8] {
        guard let key else {
            throw CloudError(.internalError, "The owner's key is gone, and what it sealed with it.")
        }
        var writer = FieldWriter()
        writer.token(1, place.start)
        writer.token(2, place.token)
        writer.text(3, place.name.rawValue)
        writer.digest(5, place.digest)
        return try key.seal(writer.take(), boundTo: context).bytes
    }

    /// Goes by what was sealed alone: with places of their own making readers would find the names by halving.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`: it is not sealed; `.changeTokenExpired`: it is not of this scope.
    func open(_ place: WireChangesPlace) throws(CloudError) -> FeedPlace {
        guard !place.sealed.isEmpty else {
            throw CloudError(
                .invalidArguments, "No page of the scope has ended with such a place. Give it back as it came.",
                details: ["argument": "place"])
        }
        guard let bytes = try? key?.open(Sealed(bytes: [UInt8](place.sealed)), boundTo: context),
            let opened = try? WireChangesPlace(serializedBytes: bytes)
        else { throw Self.foreign }
        return FeedPlace(opened)
    }

    private static let foreign = CloudError(
        .changeTokenExpired, "The place is of another scope or history. Read everything from sequence 0.")
}
