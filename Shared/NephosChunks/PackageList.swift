public import NephosCore

/// What a package is made of: a folder that changes as one. Its content begins with this list, and the bytes of its
/// files follow, one after another, in the list's order.
///
///      0  `NEPHOSPK`
///      8  format, 4 bytes: 1
///     12  bytes of the list, 4 bytes
///     16  the list: of each member, in the order of their paths' bytes
///          0  kind: 1 a file, 2 a folder, 3 a symbolic link
///          1  1: the file may be run as a program; else 0
///          2  bytes of the path, 2 bytes
///          4  bytes of the path that a link leads to, 2 bytes; else 0
///          6  number of extended attributes, 2 bytes
///          8  when the file was changed, in nanoseconds since 1970, 8 bytes, signed; else 0
///         16  bytes of the file, 8 bytes; else 0
///         24  the path, where a link leads, and of each attribute, in the order of their names' bytes, the bytes of its
///             name and of its value, 2 bytes each, its name and its value
///
/// Numbers have their least significant byte first. A folder is listed before what is in it. What is the same has the
/// same bytes: nothing in them is of the moment at which they were made.
///
/// Does no I/O. Where a link leads is data: nobody who reads a package follows it.
public struct PackageList: Hashable, Sendable {
    /// Bytes before the list.
    public static let headerBytes = 16
    static let mark = [UInt8]("NEPHOSPK".utf8)
    static let format: UInt32 = 1

    /// In the order of their paths' bytes.
    public let members: [Member]
    /// Where in the content each member's bytes begin, by its place in ``members``.
    public let offsets: [UInt64]
    /// Bytes of the content: this, and those of the files.
    public let contentLength: UInt64
    /// Bytes of the content before those of the first file.
    public let byteCount: Int

    /// - Parameter members: In any order.
    /// - Throws: ``CloudError`` `.invalidArguments` where they are no package's: a path that leads out of it, or is there
    ///   twice; a member in what is no folder of the list; `.limitExceeded` where they are too many or too long.
    public init(_ members: [Member]) throws(CloudError) {
        let members = members.map(\.canonical).sorted { $0.path.lexicographicallyPrecedes($1.path) }
        try self.init(ordered: members)
    }

    /// Reads what a content begins with.
    ///
    /// - Parameters:
    ///   - bytes: The header and the list, and nothing else: ``byteCount(ofHeader:contentLength:)``.
    ///   - contentLength: Bytes of the whole content.
    /// - Throws: ``CloudError`` `.incompatibleVersion` for a format that this build does not know; `.invalidArguments`
    ///   or `.limitExceeded` for whatever else is no package.
    public init(decoding bytes: UnsafeRawBufferPointer, contentLength: UInt64) throws(CloudError) {
        guard try Self.byteCount(ofHeader: bytes, contentLength: contentLength) == bytes.count else {
            throw Self.refused("size")
        }
        var reader = PackageListReader(UnsafeRawBufferPointer(rebasing: bytes[Self.headerBytes...]))
        var members: [Member] = []
        while let member = try reader.next() {
            guard members.count < DocumentLimits.packageMembersMax else { throw Self.tooMany }
            members.append(member)
        }
        try self.init(ordered: members)
        guard self.contentLength == contentLength else { throw Self.refused("length") }
    }

    private init(ordered members: [Member]) throws(CloudError) {
        guard members.count <= DocumentLimits.packageMembersMax else { throw Self.tooMany }
        var folders: Set<[UInt8]> = []
        var last: [UInt8] = []
        var listBytes = 0
        for member in members {
            try member.check()
            // Paths have a byte at least, so that the first is greater than none.
            guard last.lexicographicallyPrecedes(member.path) else { throw Self.refused("order") }
            last = member.path
            guard member.folder.map({ folders.contains($0) }) ?? true else { throw Self.refused("folder") }
            if member.kind == .folder { folders.insert(member.path) }
            listBytes += member.byteCount
            guard listBytes <= DocumentLimits.packageListBytesMax else { throw Self.tooLong }
        }
        self.members = members
        byteCount = Self.headerBytes + listBytes
        // So many members of at most 2^44 bytes have fewer than 2^64.
        var end = UInt64(byteCount)
        offsets = members.map { member in
            defer { end += member.length }
            return end
        }
        contentLength = end
        guard end <= DocumentLimits.contentBytesMax else { throw Self.tooLong }
    }

    /// Bytes of the header and the list.
    ///
    /// - Parameter bytes: What the content begins with; what is behind its header is not looked at.
    /// - Throws: As ``init(decoding:contentLength:)``.
    public static func byteCount(
        ofHeader bytes: UnsafeRawBufferPointer, contentLength: UInt64
    ) throws(CloudError) -> Int {
        guard bytes.count >= headerBytes, bytes.prefix(mark.count).elementsEqual(mark) else { throw refused("mark") }
        let format = bytes.number(at: 8, as: UInt32.self)
        guard format == Self.format else {
            throw CloudError(
                .incompatibleVersion, "A package is in a form that is not known here. Upgrade the older side.",
                details: ["format": String(format)])
        }
        let listBytes = bytes.number(at: 12, as: UInt32.self)
        guard listBytes <= UInt32(DocumentLimits.packageListBytesMax) else { throw tooLong }
        guard UInt64(headerBytes) + UInt64(listBytes) <= contentLength else { throw refused("size") }
        return headerBytes + Int(listBytes)
    }

    /// The bytes that the content begins with.
    public func encoded() -> [UInt8] {
        var bytes = Self.mark
        bytes.reserveCapacity(byteCount)
        bytes.append(number: Self.format)
        bytes.append(number: UInt32(byteCount - Self.headerBytes))
        for member in members { member.encode(into: &bytes) }
        return bytes
    }

    // MARK: Finding

    /// The place in ``members`` of what has this path; nil: nothing has.
    public func index(of path: some Collection<UInt8>) -> Int? {
        let index = Self.firstIndex(in: members.indices) { !members[$0].path.lexicographicallyPrecedes(path) }
        guard let index, members[index].path.elementsEqual(path) else { return nil }
        return index
    }

    /// The file that has this byte of the content; nil: it is of the list, or behind the content.
    public func index(ofByte offset: UInt64) -> Int? {
        // The last that begins at or before it is the one; those without bytes begin where the next one does.
        let next = Self.firstIndex(in: members.indices) { offsets[$0] > offset } ?? members.endIndex
        guard next > 0, offset - offsets[next - 1] < members[next - 1].length else { return nil }
        return next - 1
    }

    private static func firstIndex(in range: Range<Int>, where isBehind: (Int) -> Bool) -> Int? {
        var (low, high) = (range.lowerBound, range.upperBound)
        while low < high {
            let middle = low + (high - low) / 2
            if isBehind(middle) { high = middle } else { low = middle + 1 }
        }
        return low < range.upperBound ? low : nil
    }

    // MARK: Errors

    static func refused(_ reason: String) -> CloudError {
        CloudError(.invalidArguments, "A package is not well-formed.", details: ["reason": reason])
    }

    private static let tooMany = CloudError(
        .limitExceeded, "A package has too many members. Divide it, or put it as a folder.",
        details: ["maximum": "\(DocumentLimits.packageMembersMax)"])
    private static let tooLong = CloudError(
        .limitExceeded, "A package, or the list of its members, is too long. Divide it, or put it as a folder.",
        details: [
            "bytes_max": "\(DocumentLimits.contentBytesMax)",
            "list_bytes_max": "\(DocumentLimits.packageListBytesMax)",
        ])
}

extension UnsafeRawBufferPointer {
    /// - Parameter offset: Of which there are enough bytes.
    func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type) -> Number {
        Number(littleEndian: loadUnaligned(fromByteOffset: offset, as: type))
    }
}

extension [UInt8] {
    mutating func append(number: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
    }
}
