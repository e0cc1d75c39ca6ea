private import Foundation
public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// The storage that a container uses, by kind of data.
///
/// The device has all names and sizes, and adds them up. Only the server knows the bytes that count: it counts equal
/// parts of contents once, and only it has former versions.
public struct ContainerUsage: Hashable, Sendable {
    /// Some of the items.
    public struct Share: Hashable, Sendable {
        public var itemCount = 0
        /// Bytes of contents, with conflicts and renditions, and the fixed bytes that each item counts.
        public var bytes: UInt64 = 0
    }

    /// Items in `Documents`: the user sees them, and deletes them one by one.
    public var documents = Share()
    /// Items outside of `Documents`: the app's own data, which is deleted as a whole.
    public var hidden = Share()
    /// Items in the trash, with the contents of folders.
    public var trash = Share()
    /// Bytes among these of contents that equal another: they are stored, and count, once.
    public var sameBytes: UInt64 = 0
    /// Bytes that count, by the server's last answer.
    public var countedBytes: UInt64 = 0
    /// Bytes among these that no item above accounts for, mainly former versions. It may be more if items have equal
    /// parts.
    public var versionBytes: UInt64 {
        let known = documents.bytes.addingClamped(hidden.bytes).addingClamped(trash.bytes)
        return countedBytes - min(countedBytes, known)
    }
    /// The container's class.
    public var containerClass: ContainerClass
}

extension ContainerUsage {
    /// See ``UbiquityContainer/usage(timeout:)``.
    init(of handle: ContainerHandle, timeout: Duration?) async throws(CloudError) {
        var (usage, head) = try handle.read { documents in (try documents.usage(), try documents.rows.state().head) }
        guard let timeout else {
            self = usage
            return
        }
        var request = WireReadChanges()
        request.scope = handle.id
        // What has changed since comes another way: its first item is enough.
        request.after = WireChangeToken(head)
        request.itemsMax = 1
        let reply = try await handle.call(request, as: WireReadChangesReply.self, timeout: timeout)
        if let info = try? WireContainerInfo(serializedBytes: reply.info) { usage.countedBytes = info.countedBytes }
        self = usage
    }
}

extension DocumentTransaction {
    func usage() throws -> ContainerUsage {
        let definition = try definition()
        var usage = ContainerUsage(
            countedBytes: definition.countedBytes, containerClass: definition.containerClass)
        // By the folder that they are in: of a million files no more is kept than of their folders.
        var shares: [DocumentID: ContainerUsage.Share] = [:]
        var folders: [DocumentID: (parent: DocumentID?, isTrashed: Bool)] = [:]
        var roots: Set<Data> = []
        try eachItem { item in
            for content in item.longContents where !roots.insert(content.root).inserted {
                usage.sameBytes = usage.sameBytes.addingClamped(content.length)
            }
            let bytes = try item.wire.countedBytes() + item.contentBytes
            if item.isFolder { folders[item.id] = (DocumentID(bytes: item.wire.parent), item.wire.hasTrash) }
            if item.wire.hasTrash {
                usage.trash.add(bytes)
            } else if let parent = DocumentID(bytes: item.wire.parent) {
                shares[parent, default: ContainerUsage.Share()].add(bytes)
            }
        }
        for (folder, share) in shares {
            switch Self.place(of: folder, in: folders) {
            case .documents: usage.documents.add(share)
            case .hidden: usage.hidden.add(share)
            case .trash: usage.trash.add(share)
            }
        }
        return usage
    }

    private enum UsePlace { case documents, hidden, trash }

    /// Where a folder lies, as far as that can be said here.
    private static func place(
        of folder: DocumentID, in folders: [DocumentID: (parent: DocumentID?, isTrashed: Bool)]
    ) -> UsePlace {
        var next = folder
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            if next == .documents { return .documents }
            guard next != .top, let known = folders[next] else { return .hidden }
            if known.isTrashed { return .trash }
            guard let parent = known.parent else { return .hidden }
            next = parent
        }
        return .hidden
    }
}

extension ContainerUsage.Share {
    fileprivate mutating func add(_ bytes: UInt64) {
        itemCount += 1
        self.bytes = self.bytes.addingClamped(bytes)
    }

    fileprivate mutating func add(_ other: Self) {
        itemCount += other.itemCount
        bytes = bytes.addingClamped(other.bytes)
    }
}

extension HeldDocument {
    /// Contents that are stored by themselves.
    fileprivate var longContents: [WireDocumentContent] {
        guard wire.hasContent else { return [] }
        return ([wire.content] + wire.conflicts + wire.renditions.map(\.content)).filter { !$0.root.isEmpty }
    }

    /// Bytes of the current content and of conflicts, with their rows, and of further contents.
    fileprivate var contentBytes: UInt64 {
        guard wire.hasContent else { return 0 }
        let versions = ([wire.content] + wire.conflicts).reduce(UInt64(0)) {
            $0.addingClamped($1.length).addingClamped(UInt64(DocumentLimits.rowBytes))
        }
        return wire.renditions.reduce(versions) { $0.addingClamped($1.content.length) }
    }
}
