public import NephosCore

/// Walks the chunks of a content in their order, from any place on. Does no I/O: it says which node it needs.
///
///     var reader = ManifestReader(root, from: offset)
///     while true {
///         switch reader.next() {
///         case .node(let node): try reader.take(bytes(node.id))
///         case .chunk(let chunk): ...
///         case .end: return
///         }
///     }
///
/// Holds one node of each level. All that a node says is checked against what was said of it, so that the walk is never
/// longer than the root's length, and a step never more than a node of each level. What remains unchecked is whether a
/// chunk is as long as the node says: compare it.
///
/// A tree that names one node many times is a content that has it many times. Whoever needs each node only once uses
/// ``ManifestDifference``.
public struct ManifestReader: Sendable {
    /// A chunk in its place.
    public struct Chunk: Hashable, Sendable {
        public let id: ChunkID
        /// Where in the content it begins.
        public let offset: UInt64
        /// Bytes, 1 to 1 MiB.
        public let length: Int
    }

    public enum Step: Hashable, Sendable {
        /// It needs this node: ``take(_:)`` or ``skip()``. Said again until then.
        case node(NodeReference)
        case chunk(Chunk)
        case end
    }

    private struct Place {
        let node: ManifestNode
        var next = 0
    }

    /// From the top node down.
    private var places: [Place] = []
    /// What ``Step/node(_:)`` names.
    private(set) var needed: NodeReference?
    /// The only chunk of a content that has no node.
    private var only: ManifestNode.Child?
    /// Where in the content the next child begins.
    private var offset: UInt64 = 0
    private let start: UInt64

    /// - Parameter start: The first chunk is the one that has this byte; there is none if the content ends before it.
    public init(_ root: ContentRoot, from start: UInt64 = 0) {
        self.start = start
        guard start < root.length else { return }
        needed = root.node
        if needed == nil { only = ManifestNode.Child(id: root.id, length: root.length) }
    }

    /// Goes on to the next chunk, or to a node that it needs first.
    public mutating func next() -> Step {
        if let needed { return .node(needed) }
        if let child = only {
            only = nil
            return .chunk(chunk(child))
        }
        while let last = places.indices.last {
            let place = places[last]
            guard place.next < place.node.children.count else {
                places.removeLast()
                continue
            }
            let child = place.node.children[place.next]
            places[last].next += 1
            // Lengths add up to the root's, which is at most 2^44.
            if offset + child.length <= start {
                offset += child.length
            } else if place.node.level == 0 {
                return .chunk(chunk(child))
            } else {
                let node = NodeReference(id: child.id, level: place.node.level - 1, length: child.length)
                needed = node
                return .node(node)
            }
        }
        return .end
    }

    /// Takes the bytes of the node that it needs.
    ///
    /// - Throws: ``CloudError`` as ``ManifestNode/init(decoding:as:)``; `.invalidArguments` for a top node with one
    ///   child, which no content has, and if it needs no node. It needs the same as before then.
    public mutating func take(_ bytes: UnsafeRawBufferPointer) throws {
        guard let needed else { throw CloudError(.invalidArguments, "No node of a manifest was asked for.") }
        try enter(ManifestNode(decoding: bytes, as: needed))
    }

    /// Takes the node that it needs, as somebody has read it who asked for this id, level and length before.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` as ``take(_:)-(UnsafeRawBufferPointer)`` does.
    public mutating func take(_ node: ManifestNode) throws {
        guard let needed else { throw CloudError(.invalidArguments, "No node of a manifest was asked for.") }
        guard node.level == needed.level else { throw ManifestNode.refused("level") }
        guard node.length == needed.length else { throw ManifestNode.refused("length") }
        try enter(node)
    }

    private mutating func enter(_ node: ManifestNode) throws {
        guard !places.isEmpty || node.children.count > 1 else { throw ManifestNode.refused("top") }
        places.append(Place(node: node))
        needed = nil
    }

    /// Where in the content the next chunk or node begins.
    public var position: UInt64 { offset }

    /// The nodes that come after the one that it needs, and that the same node names; none if it needs none.
    public var following: [NodeReference] {
        guard needed != nil, let last = places.last, last.node.level > 0 else { return [] }
        return last.node.children[last.next...].map {
            NodeReference(id: $0.id, level: last.node.level - 1, length: $0.length)
        }
    }

    /// Passes over the node that it needs, and all below it. For whoever knows a node with this id, level *and* length.
    public mutating func skip() {
        guard let needed else { return }
        offset += needed.length
        self.needed = nil
    }

    private mutating func chunk(_ child: ManifestNode.Child) -> Chunk {
        defer { offset += child.length }
        // At most 1 MiB, as the node or the root was checked.
        return Chunk(id: child.id, offset: offset, length: Int(child.length))
    }
}
