internal import Foundation
internal import NephosCore
internal import NephosKit

/// An address of WebDAV: `/dav/`, `/dav/CONTAINER/` or a path in a container's `Documents`.
struct DavPath: Hashable, Sendable {
    static let prefix = "/dav"

    /// Nil: the list of containers.
    var container: String?
    /// Names beneath `Documents`, by their bytes.
    var names: [Data]

    var isTop: Bool { container == nil }
    /// Whether it is a container itself.
    var isContainer: Bool { container != nil && names.isEmpty }
    var last: Data { names.last ?? Data() }
    var parent: DavPath { DavPath(container: container, names: names.dropLast()) }

    func appending(_ name: Data) -> DavPath { DavPath(container: container, names: names + [name]) }

    /// Whether the other is this one, or in it.
    func contains(_ other: DavPath) -> Bool {
        isTop || container == other.container && other.names.starts(with: names)
    }

    /// - Throws: ``CloudError`` `.invalidArguments` for a name that no item can have.
    var document: DocumentPath { get throws(CloudError) { try DocumentPath(inDocuments: names) } }

    /// Reads the path of a request, percent-encoded.
    ///
    /// - Returns: Nil: it is no address of WebDAV, or names nothing that can be.
    init?(_ path: String) {
        guard path.utf8.starts(with: Self.prefix.utf8) else { return nil }
        let rest = path.utf8.dropFirst(Self.prefix.utf8.count)
        guard rest.isEmpty || rest.first == UInt8(ascii: "/") else { return nil }
        var names: [Data] = []
        for part in rest.split(separator: UInt8(ascii: "/")) {
            guard let name = Self.decoded(part), DocumentLimits.isName(name) else { return nil }
            names.append(name)
        }
        guard let first = names.first else {
            (container, self.names) = (nil, [])
            return
        }
        guard let text = String(validating: first, as: UTF8.self), NameRule.accepts(text) else { return nil }
        (container, self.names) = (text, Array(names.dropFirst()))
    }

    init(container: String?, names: [Data]) { (self.container, self.names) = (container, names) }

    private static func decoded(_ part: Substring.UTF8View) -> Data? {
        var bytes = Data()
        var iterator = part.makeIterator()
        while let byte = iterator.next() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = iterator.next().flatMap(digit), let low = iterator.next().flatMap(digit) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// The address, percent-encoded.
    ///
    /// - Parameter isFolder: Whether it ends in a slash.
    func href(isFolder: Bool) -> String {
        var text = Self.prefix
        for name in [container.map { Data($0.utf8) }].compactMap({ $0 }) + names { text += "/" + Self.encoded(name) }
        return isFolder ? text + "/" : text
    }

    static func encoded(_ name: Data) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        var bytes: [UInt8] = []
        for byte in name {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                bytes.append(byte)
            default: bytes += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
