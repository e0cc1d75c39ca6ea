import Foundation
import NephosChunks
import NephosCore

/// What is wrong with what names a content.
enum ContentReading {
    static let damaged = CloudError(.storageFailure, "What the server says of this content cannot be true.")
}

/// Walks the chunks of a part of a content, in their order. Does no I/O: it says which nodes it needs.
///
/// Holds a node of each level and ``heldMax`` besides, whatever the content: one that has a node many times, as one
/// file can have without being long, asks for it once. What it has said is its owner's to bound.
struct ContentWalk {
    enum Step: Equatable {
        case chunk(CutChunk, offset: Int)
        /// It needs these, 1 to 32: ``take(_:)``. Said again until then.
        case nodes([ChunkID])
        case end
    }

    /// Nodes that it keeps to come to them again, or soon: 1.3 MB.
    static let heldMax = 64

    private var reader: ManifestReader
    private let range: Range<UInt64>
    private var asked: [NodeReference] = []
    private var held: [NodeReference: ManifestNode] = [:]
    /// Those that are held, the last used last.
    private var order: [NodeReference] = []

    /// - Parameter range: Bytes that are wanted: only the chunks that have some of them are said, and only the nodes
    ///   that lead there are needed.
    /// - Throws: ``CloudError`` `.storageFailure`: no content has such a root.
    init(root: ChunkID, depth: UInt32, length: UInt64, range: Range<UInt64>) throws(CloudError) {
        guard let depth = UInt8(exactly: depth),
            let content = try? ContentRoot(id: root, depth: depth, length: length)
        else { throw ContentReading.damaged }
        self.range = range.clamped(to: 0..<length)
        reader = ManifestReader(content, from: self.range.lowerBound)
    }

    /// - Throws: ``CloudError`` `.storageFailure` for a node that cannot be where it is.
    mutating func next() throws(CloudError) -> Step {
        while true {
            guard !range.isEmpty, reader.position < range.upperBound else { return .end }
            switch reader.next() {
            case .end: return .end
            case .chunk(let chunk):
                guard chunk.offset < range.upperBound else { return .end }
                return .chunk(CutChunk(id: chunk.id, length: chunk.length), offset: Int(chunk.offset))
            case .node(let node):
                // What the one before it had was passed over.
                guard reader.position < range.upperBound else { return .end }
                guard let known = held[node] else {
                    asked = missing(from: node)
                    return .nodes(asked.map(\.id))
                }
                touch(node)
                do { try reader.take(known) } catch { throw ContentReading.damaged }
            }
        }
    }

    /// The node, and those after it that are needed soon. Of the levels above one alone: it leads to 512 below.
    private func missing(from node: NodeReference) -> [NodeReference] {
        guard node.level == 0 else { return [node] }
        var missing = [node]
        var seen: Set<NodeReference> = [node]
        var offset = reader.position + node.length
        for next in reader.following {
            guard missing.count < DocumentLimits.nodesReadMax, offset < range.upperBound else { break }
            offset += next.length
            if held[next] == nil, seen.insert(next).inserted { missing.append(next) }
        }
        return missing
    }

    /// Takes the bytes of the nodes that it needs, in the order said.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` for others; `.incompatibleVersion` for those of a later form.
    mutating func take(_ nodes: [Data]) throws(CloudError) {
        guard nodes.count == asked.count else { throw ContentReading.damaged }
        for (bytes, reference) in zip(nodes, asked) {
            held[reference] = try Self.decode(bytes, as: reference)
            touch(reference)
        }
        asked = []
        for reference in order.prefix(max(0, order.count - Self.heldMax)) { held[reference] = nil }
        order.removeFirst(max(0, order.count - Self.heldMax))
    }

    private mutating func touch(_ reference: NodeReference) {
        if let place = order.lastIndex(of: reference) { order.remove(at: place) }
        order.append(reference)
    }

    private static func decode(_ bytes: Data, as reference: NodeReference) throws(CloudError) -> ManifestNode {
        do { return try bytes.withUnsafeBytes { try ManifestNode(decoding: $0, as: reference) } } catch {
            guard let error = error as? CloudError, error.code == .incompatibleVersion else {
                throw ContentReading.damaged
            }
            throw error
        }
    }
}
