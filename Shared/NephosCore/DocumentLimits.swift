/// Bounds of what a container holds. The same check runs on devices and in the service.
public enum DocumentLimits {
    /// Bytes of a name.
    public static let nameBytesMax = 255
    /// Whether an item can be called so: without `/` and NUL, and neither `.` nor `..`.
    public static func isName(_ name: some Collection<UInt8>) -> Bool {
        (1...nameBytesMax).contains(name.count) && !name.contains(0) && !name.contains(UInt8(ascii: "/"))
            && !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
    }

    /// Folders above an item, the container's top among them.
    public static let depthMax = 128
    /// Items of a folder.
    public static let folderCountMax = 100_000
    /// Items of a container, those in the trash among them.
    public static let itemCountMax = 2_000_000
    /// What an item counts besides its name, its attributes and its contents, in bytes: its rows.
    public static let itemBytes = 256
    /// What a version, a further content, an announcement, a link and a manifest node count besides, each: its row.
    public static let rowBytes = 512
    /// Changes of one batch.
    public static let changesMax = 500
    /// Manifest nodes of one batch, in bytes: of a content of 400 MB. Those of longer ones go ahead of it.
    public static let nodesBytesMax = 64 << 10
    /// Items that a device says to have changed itself in a folder that it deletes.
    public static let seenMax = 1000
    /// Conditions of one batch.
    public static let conditionsMax = 100
    /// Items and names that a service looks up for one batch.
    public static let looksMax = 5000
    /// Bytes of the items that a service looks up for one batch, as they are stored.
    public static let looksBytesMax = 16 << 20
    /// Days that the operator may say how long something stays in the trash, and former versions are kept.
    public static let retentionDaysMax = 3650
    /// A content that goes with its item.
    public static let inlineBytesMax = 4096
    /// A content, in bytes.
    public static let contentBytesMax: UInt64 = 16 << 40
    /// The path that a symbolic link leads to, in bytes.
    public static let linkBytesMax = 4095
    /// Extended attributes of an item, names and values together, in bytes; and how many.
    public static let attributeBytesMax = 32 << 10
    public static let attributeCountMax = 64
    /// Tags of an item, and bytes of one.
    public static let tagCountMax = 32
    public static let tagBytesMax = 128
    /// Versions that are kept of an item's content at most; of older ones fewer (`VersionRule`).
    public static let versionsMax = 100
    /// Versions that one batch removes, and those that it names for that.
    public static let versionsRemovedMax = 1000
    /// Conflicts of an item that nobody has resolved.
    public static let conflictsMax = 16
    /// Versions with the same bytes of which a content says that it took their place.
    public static let sameAsMax = 8
    /// Further contents of an item, and bytes of the name of one.
    public static let renditionsMax = 8
    public static let renditionNameBytesMax = 64
    /// Whether a further content can be called so: by text in UTF-8 without `/` and NUL, so that anybody can type it.
    public static func isRenditionName(_ name: some Collection<UInt8>) -> Bool {
        (1...renditionNameBytesMax).contains(name.count) && !name.contains(0) && !name.contains(UInt8(ascii: "/"))
            && String(validating: name, as: UTF8.self) != nil
    }

    /// Members of a package, and bytes of the list of them: paths, the targets of links, and attributes.
    public static let packageMembersMax = 100_000
    public static let packageListBytesMax = 16 << 20
    /// The path of a member within its package, in bytes; and how many names it has, ``depthMax`` at most.
    public static let packagePathBytesMax = 4095
    /// Contents of an item that are said to be on their way.
    public static let announcementsMax = 8
    /// Items that a device says it is about to make, in a container.
    public static let comingMax = 64
    /// How long that is believed, and of how long still it is said anew.
    public static let announcementLifetime: Duration = .seconds(24 * 3600)
    public static let announcementRenewal: Duration = .seconds(12 * 3600)
    /// From how many bytes on a device says that a content is on its way.
    public static let announcedBytesMin: UInt64 = 1 << 20
    /// Bytes of the items that a reply has; those of more are read.
    public static let replyBytesMax = 1 << 20
    /// Items that are asked about in one request.
    public static let askedMax = 1000
    /// Items of a container that were removed for good, of which that is remembered: the last ones.
    public static let endedMax = 1_000_000
    /// Ids of chunks and nodes that are asked about in one request.
    public static let missingMax = 1024
    /// Nodes that are read in one request.
    public static let nodesReadMax = 32
    /// Digests of a folder's items in one page; and items of which they are asked for themselves.
    public static let digestsMax = 2048
    public static let digestsAskedMax = 256
}
