public import Foundation
public import NephosCore
public import NephosPredicates
internal import NephosWire

/// The date of a file: nanoseconds since 1970, from the year 1677 to 2262. A date outside of them is the nearest end.
public typealias DocumentDate = PredicateDate

/// A file, folder, link or package of a container, as this device knows it.
public struct DocumentEntry: Hashable, Sendable {
    /// What it is.
    public enum Kind: String, Sendable {
        case file, folder
        /// A symbolic link: its content is where it leads.
        case link
        /// A folder that changes as one: its content is all that is in it; see ``DocumentPackages/members(of:version:timeout:)``.
        case package
    }

    /// What of it the server has not got yet.
    public enum PendingState: String, Sendable {
        /// Nothing.
        case none
        /// A change waits to be sent.
        case waiting
        /// So does its content.
        case uploading
    }

    /// Where its content, and what was changed of it, stands between this device and the server.
    public enum TransferState: String, Sendable, CaseIterable {
        /// Both have the same.
        case current
        /// A change waits to be sent.
        case waiting
        /// Its content is sent, or waits to be.
        case uploading
        /// The server refused the last change of it, and nobody has dismissed that.
        case refused
        /// Its content is fetched, or waits to be.
        case downloading
        /// Its newest content is on the server alone, and is fetched when it is asked for.
        case notDownloaded
        /// Its sync is paused: what was changed here waits, and what others have changed is not fetched.
        case paused
    }

    /// Names it for good, wherever it is moved.
    public var id: DocumentID
    /// From the container's top: `/Documents/Letters/a.txt`. Where a name is no text it shows U+FFFD in its place.
    public var path: String
    /// What it is called in its folder.
    public var name: String
    /// The name's bytes, of which any but `/` and NUL may be in it.
    public var nameBytes: Data
    /// The folder that it is in.
    public var parent: DocumentID
    /// Names the place where it is, under the name that it has there; nil: every container has the folder.
    public var placeVersion: DocumentID?
    /// What it is.
    public var kind: Kind
    /// Bytes of its content; 0 of a folder.
    public var size: UInt64
    /// When it was made, as the person's device says; nil: it does not say.
    public var created: DocumentDate?
    /// When its content was changed, as the person's device says; of a folder: when what is in it was
    /// changed, as it was put; nil: unknown.
    public var modified: DocumentDate?
    /// The version of its content; nil: it is a folder.
    public var version: DocumentID?
    /// The device that committed the content; nil: it is a folder, or waits here.
    public var device: DeviceID?
    /// Whether the file may be run as a program.
    public var isExecutable: Bool
    /// The labels that the person has given it.
    public var tags: [String]
    /// Where it stands among the person's favourites, the lowest first; 0: it is none.
    public var favouriteRank: Int64
    /// Whether it is left out of backups, by itself: ``DocumentAttributes/doNotBackUp``.
    public var isExcludedFromBackup: Bool
    /// It, or a folder that it is in, lies in the trash.
    public var isTrashed: Bool
    /// What it was deleted with, if it lies in the trash itself.
    public var trashBatch: DocumentID?
    /// When it was deleted, by the server's clock; nil: it was not, or the server does not know yet.
    public var trashed: Timestamp?
    /// Contents that lost to another and that nobody has resolved.
    public var conflictCount: Int
    /// The names of its further contents; see ``DocumentRenditions``.
    public var renditionNames: [String]
    /// What of it the server has not got yet.
    public var pending: PendingState
    /// Where it stands between this device and the server.
    public var state: TransferState
    /// How much of its content the server has of this device, 0 to 100; 100 also where there is nothing to send.
    public var percent: Int
    /// What of its content is on this device.
    public var download: DocumentDownload
    /// Whether its sync is paused.
    public var isPaused: Bool
    /// Why it is so still, where it was to be resumed: a sentence; nil: nothing was in the way.
    public var pauseProblem: String?
    /// Contents that other devices are sending, as they have said; until one is there the item is as it was.
    public var incoming: [IncomingContent]
}

/// A content that another device is sending.
public struct IncomingContent: Hashable, Sendable {
    /// Who sends it.
    public var device: DeviceID
    /// Bytes.
    public var size: UInt64
    /// When it was said first, by the server's clock.
    public var since: Timestamp?
}

/// A file that another device is about to make: it is no item until its content has come.
public struct ComingDocument: Sendable {
    /// What it will be named by.
    public var id: DocumentID
    /// Where it will lie, unless something else has the name by then.
    public var path: String
    /// The last part of that.
    public var name: String
    /// Who sends it, and how much that is.
    public var content: IncomingContent
}

/// What of an item's content is on this device.
public struct DocumentDownload: Hashable, Sendable {
    /// As `NSURLUbiquitousItemDownloadingStatus` has it.
    public enum Status: String, Sendable, CaseIterable {
        /// Nothing: it is fetched when it is asked for.
        case notDownloaded
        /// An earlier content than the newest that this device knows of.
        case downloaded
        /// The newest that this device knows of; also of folders. It is read without a connection.
        case current
    }

    /// What is here.
    public var status = Status.current
    /// How much of the newest content has come, 0 to 100; 100 where it is here.
    public var percent = 100
    /// Whether it is fetched, or waits to be.
    public var isRequested = false
    /// Whether it is kept downloaded, for its own sake or for a folder's that it is in.
    public var isPinned = false
    /// Why it has not come yet, a sentence; nil: nothing was in the way.
    public var problem: String?
}

extension DocumentEntry.Kind {
    init?(_ kind: WireItemKind) {
        switch kind {
        case .file: self = .file
        case .folder: self = .folder
        case .link: self = .link
        case .package: self = .package
        case .unspecified, .coming, .UNRECOGNIZED: return nil
        }
    }
}

extension DocumentID {
    /// As messages and rows hold it.
    var wire: Data { Data(bytes) }
}

extension Timestamp {
    /// A time that a server's or device's clock has given. Nil of 0, which stands for none; a time before 1970 is 1970.
    init?(nanoseconds: Int64) {
        guard nanoseconds != 0 else { return nil }
        self.init(milliseconds: UInt64(clamping: nanoseconds / 1_000_000))
    }
}

/// What was deleted in one go.
public struct DeletedDocuments: Hashable, Sendable {
    /// Names it: it is restored and removed as one.
    public var batch: DocumentID
    /// When, by the server's clock; nil: the server does not know yet.
    public var trashed: Timestamp?
    /// The container that it was moved to; nil: it was deleted.
    public var movedTo: String?
    /// What was deleted by itself; what is in a folder goes with it.
    public var items: [DocumentEntry]
    /// Which device has deleted it; nil: this one, and the server does not know yet.
    public var device: DeviceID?
    /// Bytes of all contents in it, without former versions.
    public var bytes: UInt64 = 0
    /// When it is removed for good, by the server's clock; nil: the server does not know of it yet.
    public var expires: Timestamp?
}

/// A version of an item's content.
public struct DocumentVersion: Hashable, Sendable {
    /// What it is to its item.
    public enum Standing: String, Sendable {
        /// What the item has now.
        case current
        /// It lost to another, and nobody has resolved that.
        case conflict
        /// Another took its place.
        case former
    }

    /// Names it.
    public var id: DocumentID
    /// What it is to its item.
    public var standing: Standing
    /// The version that it was made from.
    public var base: DocumentID?
    /// Bytes.
    public var size: UInt64
    /// When the person changed it, as their device says.
    public var modified: DocumentDate
    /// When the server took it, by its clock.
    public var committed: Timestamp?
    /// Who committed it.
    public var device: DeviceID?
    let content: WireDocumentContent

    /// - Parameter item: Whose content it is.
    init?(_ wire: WireDocumentContent, of item: WireDocumentItem) {
        guard let id = DocumentID(bytes: wire.version) else { return nil }
        self.id = id
        let isConflict = item.conflicts.contains { $0.version == wire.version }
        standing = wire.version == item.content.version ? .current : isConflict ? .conflict : .former
        base = DocumentID(bytes: wire.base)
        size = wire.length
        modified = DocumentDate(nanoseconds: wire.modified)
        committed = Timestamp(nanoseconds: wire.committed)
        device = wire.deviceID.isEmpty ? nil : DeviceID(wire.deviceID)
        content = wire
    }
}
