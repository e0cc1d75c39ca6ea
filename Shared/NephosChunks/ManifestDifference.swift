internal import NephosCore

/// Walks what a content has and those known already have not: the nodes to store, and the chunks that they name.
///
/// Each node is asked for once, however often the tree names it. A node that is known is passed over with all below it;
/// known are nodes by id, level and length, so that one that is said to be longer than it is gets looked at, and
/// refused. What is known of an older version of a file comes from walking its nodes down to level 0, whose own bytes
/// need not be read:
///
///     var old = ManifestReader(root)
///     while case .node(let node) = old.next() {
///         known.insert(node)
///         if node.level == 0 { old.skip() } else { try old.take(bytes(node.id)) }
///     }
///
/// Of a node that is not known all chunks are told, also those that another node has.
public struct ManifestDifference: Sendable {
    /// Nodes that a walk asks for, at most, unless told otherwise. 16 TiB in chunks of 256 KiB have about half as many.
    public static let nodesMaxDefault = 1 << 20

    private var reader: ManifestReader
    private var known: Set<NodeReference>
    private var nodesLeft: Int

    /// - Parameter nodesMax: Nodes to take, at most: so many are kept in mind, with 64 bytes or so each.
    public init(to root: ContentRoot, known: Set<NodeReference> = [], nodesMax: Int = nodesMaxDefault) {
        reader = ManifestReader(root)
        self.known = known
        nodesLeft = nodesMax
    }

    /// Goes on to the next chunk or node that is not known. As ``ManifestReader/next()``, and not longer than what is
    /// passed over in the nodes that were taken.
    public mutating func next() -> ManifestReader.Step {
        while true {
            let step = reader.next()
            guard case .node(let node) = step, known.contains(node) else { return step }
            reader.skip()
        }
    }

    /// Takes the bytes of the node that it needs. That node is known from then on.
    ///
    /// - Throws: ``CloudError`` as ``ManifestReader/take(_:)``; `.limitExceeded` if it is a node too many.
    public mutating func take(_ bytes: UnsafeRawBufferPointer) throws {
        guard nodesLeft > 0 else {
            throw CloudError(.limitExceeded, "A manifest has more nodes than can be looked at in one go.")
        }
        let step = reader.next()
        try reader.take(bytes)
        nodesLeft -= 1
        if case .node(let node) = step { known.insert(node) }
    }

    /// Passes over the node that it needs, and all below it: the caller knows it, with this id, level and length.
    public mutating func skip() { reader.skip() }
}
