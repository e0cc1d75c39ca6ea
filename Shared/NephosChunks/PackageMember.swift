internal import NephosCore

extension PackageList {
    /// A file, a folder or a symbolic link of a package.
    public struct Member: Hashable, Sendable {
        public enum Kind: UInt8, Sendable {
            case file = 1
            case folder = 2
            case link = 3
        }

        public var kind: Kind
        /// From the package's top, without a slash before it: `Contents/a.txt`. Any bytes but NUL.
        public var path: [UInt8]
        /// Whether a file may be run as a program.
        public var isExecutable: Bool
        /// Where a link leads: 1 to 4095 bytes without NUL.
        public var target: [UInt8]
        /// In the order of their names' bytes, each once.
        public var attributes: [Attribute]
        /// When a file was changed, in nanoseconds since 1970; 0 of what is none.
        public var modified: Int64
        /// Bytes of a file; 0 of what is none.
        public var length: UInt64

        public init(
            _ kind: Kind, _ path: [UInt8], isExecutable: Bool = false, target: [UInt8] = [],
            attributes: [Attribute] = [], modified: Int64 = 0, length: UInt64 = 0
        ) {
            self.kind = kind
            self.path = path
            self.isExecutable = isExecutable
            self.target = target
            self.attributes = attributes
            self.modified = modified
            self.length = length
        }

        /// The folder that it is in; nil: the package itself.
        public var folder: [UInt8]? {
            path.lastIndex(of: UInt8(ascii: "/")).map { Array(path[..<$0]) }
        }

        /// What it is called in its folder.
        public var name: ArraySlice<UInt8> {
            path[(path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0)...]
        }
    }

    /// An extended attribute of a member.
    public struct Attribute: Hashable, Sendable {
        /// Any bytes but NUL, 1 to 255.
        public var name: [UInt8]
        public var value: [UInt8]

        public init(name: [UInt8], value: [UInt8]) {
            self.name = name
            self.value = value
        }
    }
}

extension PackageList.Member {
    static let headBytes = 24

    /// Bytes of its entry.
    var byteCount: Int {
        Self.headBytes + path.count + target.count + attributes.reduce(0) { $0 + 4 + $1.name.count + $1.value.count }
    }

    /// With its attributes in their order.
    var canonical: Self {
        var member = self
        member.attributes.sort { $0.name.lexicographicallyPrecedes($1.name) }
        return member
    }

    /// Whether its numbers fit into their fields follows from this.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`.
    func check() throws(CloudError) {
        let names = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        guard path.count <= DocumentLimits.packagePathBytesMax, names.count <= DocumentLimits.depthMax else {
            throw CloudError(
                .limitExceeded, "A path in a package is too long, or has too many folders. Put it as a folder.",
                details: [
                    "bytes_max": "\(DocumentLimits.packagePathBytesMax)", "depth_max": "\(DocumentLimits.depthMax)",
                ])
        }
        guard names.allSatisfy({ DocumentLimits.isName($0) }) else { throw PackageList.refused("path") }
        guard kind == .file || (!isExecutable && modified == 0 && length == 0) else {
            throw PackageList.refused("kind")
        }
        guard length <= DocumentLimits.contentBytesMax else { throw PackageList.refused("length") }
        guard
            kind == .link
                ? (1...DocumentLimits.linkBytesMax).contains(target.count) && !target.contains(0) : target.isEmpty
        else { throw PackageList.refused("target") }
        try checkAttributes()
    }

    private func checkAttributes() throws(CloudError) {
        let bytes = attributes.reduce(0) { $0 + $1.name.count + $1.value.count }
        guard attributes.count <= DocumentLimits.attributeCountMax, bytes <= DocumentLimits.attributeBytesMax else {
            throw CloudError(
                .limitExceeded, "The extended attributes of a package's member are too large or too many.",
                details: [
                    "bytes_max": "\(DocumentLimits.attributeBytesMax)",
                    "count_max": "\(DocumentLimits.attributeCountMax)",
                ])
        }
        var last: [UInt8] = []
        for attribute in attributes {
            guard (1...DocumentLimits.nameBytesMax).contains(attribute.name.count), !attribute.name.contains(0),
                last.lexicographicallyPrecedes(attribute.name)
            else { throw PackageList.refused("attribute") }
            last = attribute.name
        }
    }

    func encode(into bytes: inout [UInt8]) {
        bytes.append(kind.rawValue)
        bytes.append(isExecutable ? 1 : 0)
        bytes.append(number: UInt16(path.count))
        bytes.append(number: UInt16(target.count))
        bytes.append(number: UInt16(attributes.count))
        bytes.append(number: modified)
        bytes.append(number: length)
        bytes += path + target
        for attribute in attributes {
            bytes.append(number: UInt16(attribute.name.count))
            bytes.append(number: UInt16(attribute.value.count))
            bytes += attribute.name + attribute.value
        }
    }
}

/// Reads the entries of a list one after another. Whether what they say is allowed is for others to look at.
struct PackageListReader {
    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    /// - Returns: Nil: that was the last.
    mutating func next() throws(CloudError) -> PackageList.Member? {
        guard offset < bytes.count else { return nil }
        let head = try take(PackageList.Member.headBytes)
        guard let kind = PackageList.Member.Kind(rawValue: head[0]), head[1] <= 1 else {
            throw PackageList.refused("kind")
        }
        var member = PackageList.Member(kind, [], isExecutable: head[1] == 1)
        member.modified = head.number(at: 8, as: Int64.self)
        member.length = head.number(at: 16, as: UInt64.self)
        member.path = Array(try take(Int(head.number(at: 2, as: UInt16.self))))
        member.target = Array(try take(Int(head.number(at: 4, as: UInt16.self))))
        let count = head.number(at: 6, as: UInt16.self)
        guard count <= UInt16(DocumentLimits.attributeCountMax) else { throw PackageList.refused("attribute") }
        for _ in 0..<count {
            let lengths = try take(4)
            member.attributes.append(
                PackageList.Attribute(
                    name: Array(try take(Int(lengths.number(at: 0, as: UInt16.self)))),
                    value: Array(try take(Int(lengths.number(at: 2, as: UInt16.self))))))
        }
        return member
    }

    private mutating func take(_ count: Int) throws(CloudError) -> UnsafeRawBufferPointer {
        guard count <= bytes.count - offset else { throw PackageList.refused("size") }
        defer { offset += count }
        return UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count])
    }
}
