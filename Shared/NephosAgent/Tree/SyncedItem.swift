package import Foundation
package import NephosCore
package import NephosFiles

/// Identifies a file and its state on disk. While the stamp is equal, the content is.
package struct FileStamp: Hashable, Sendable {
    package var inode: UInt64
    /// In nanoseconds since 1970; 0: the file system does not say.
    package var born: Int64
    package var size: Int64
    package var modified: Int64
    package var changed: Int64
    package var isExecutable: Bool

    package init(_ facts: FileFacts) {
        (inode, born, size) = (facts.inode, facts.born, facts.size)
        (modified, changed, isExecutable) = (facts.modified, facts.changed, facts.isExecutable)
    }

    init(inode: UInt64, born: Int64, size: Int64, modified: Int64, changed: Int64, isExecutable: Bool) {
        (self.inode, self.born, self.size) = (inode, born, size)
        (self.modified, self.changed, self.isExecutable) = (modified, changed, isExecutable)
    }

    /// Whether it is the same file or folder, whatever was written to it.
    package func isFile(_ facts: FileFacts) -> Bool { inode == facts.inode && born == facts.born }

    /// Whether a file that was renamed since still has its content. A rename changes only the time of the last change.
    package func hasContent(of facts: FileFacts) -> Bool {
        isFile(facts) && size == facts.size && modified == facts.modified
    }

    /// A file that was written so shortly before it was read may be written again without another time.
    ///
    /// - Parameter time: When the reading began, in nanoseconds since 1970.
    package func isRacy(at time: Int64) -> Bool {
        let second: Int64 = 1_000_000_000
        let grain = modified % second == 0 && changed % second == 0 ? 2 * second : Self.clockGrain
        // No program sets this time. One far in the future is of a clock that was wrong, and says nothing.
        return changed >= time - grain && changed <= time + second
    }

    /// The kernel's clock of files ticks every 1 to 10 milliseconds.
    private static let clockGrain: Int64 = 20_000_000
}

/// An item as the folder on disk and the container had it when they were last equal: the merge base.
package struct SyncedItem: Hashable, Sendable {
    package var id: DocumentID
    /// The folder's item. A parked item has ``parkingLot``, and its name in the agent's own
    /// folder.
    package var parent: DocumentID
    package var name: FileName
    package var kind: FileFacts.Kind
    /// The version of the content on disk; nil: it is a folder.
    package var version: DocumentID?
    package var stamp: FileStamp
    /// Equal for equal contents; nil: it is a folder.
    package var digest: Data?
    /// The content was read so soon after it was written that the stamp proves nothing: the next look reads it again, and
    /// until then nothing replaces it.
    package var isRacy = false
    /// The server rejected the content on disk. It is sent again with the file's next change, or after a pause.
    package var isRejected = false
    /// The version that the rejected content was made from; nil: the item was new.
    package var base: DocumentID?
    /// The content is not on disk. A ``Placeholder`` has its place, and ``name`` and ``stamp`` are the placeholder's.
    package var isEvicted = false

    /// No item lies at the container's top in an agent's tree.
    package static let parkingLot = DocumentID.top

    /// Whether the content on disk has to be sent whatever its stamp is. No file has such a stamp.
    var isToBeSent: Bool {
        get { stamp.changed == 0 }
        set { if newValue { stamp.changed = 0 } }
    }

    /// The version that the container has as far as is known here; nil: none.
    var containerVersion: DocumentID? { isRejected ? base : version }

    package var isParked: Bool { parent == Self.parkingLot }

    var place: Place { Place(folder: parent, name: name) }

    /// The item's own name, which an evicted one's file on disk does not have.
    var itemName: FileName { name(at: place) }

    /// The item's own name if its file has another place.
    func name(at place: Place) -> FileName { isEvicted ? Placeholder.file(of: place.name) ?? place.name : place.name }
}
