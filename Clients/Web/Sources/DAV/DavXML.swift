internal import Foundation
internal import FoundationXML

/// The name of a property or element: a namespace and a local name.
struct XMLName: Hashable, Sendable {
    var namespace: String
    var local: String

    static func dav(_ local: String) -> XMLName { XMLName(namespace: "DAV:", local: local) }
}

/// An element of a request's body.
struct XMLElement: Sendable {
    enum Node: Sendable {
        case element(XMLElement)
        case text(String)
    }

    var name: XMLName
    var nodes: [Node] = []

    var elements: [XMLElement] { nodes.compactMap { if case .element(let element) = $0 { element } else { nil } } }
    var text: String { nodes.map { if case .text(let text) = $0 { text } else { "" } }.joined() }
    func first(_ name: XMLName) -> XMLElement? { elements.first { $0.name == name } }

    /// The element's content as XML that stands by itself: each element says its namespace.
    var content: String {
        nodes.map { node in
            switch node {
            case .text(let text): XMLText.escaped(text)
            case .element(let element): element.outer
            }
        }.joined()
    }

    private var outer: String {
        "<\(name.local) xmlns=\"\(XMLText.escaped(name.namespace))\">\(content)</\(name.local)>"
    }

    static let bytesMax = 256 << 10

    /// Reads a document of UTF-8.
    ///
    /// - Returns: Nil: it is not well-formed, has another encoding or a document type, too many elements, or too deep in each
    ///   other, or a name or namespace of more than 256 bytes: answers repeat them.
    static func parse(_ bytes: [UInt8]) -> XMLElement? {
        guard isPlain(bytes) else { return nil }
        let reader = Reader()
        let parser = XMLParser(data: Data(bytes))
        parser.shouldProcessNamespaces = true
        parser.delegate = reader
        _ = parser.parse()
        return reader.isRejected ? nil : reader.root
    }

    /// Whether XMLParser may read it: it ends the program over bytes that are no UTF-8, over some declarations of document
    /// types, and over an empty processing instruction. WebDAV has none of these.
    private static func isPlain(_ bytes: [UInt8]) -> Bool {
        guard let text = String(validating: bytes, as: UTF8.self), !bytes.contains(0) else { return false }
        var parts = text.utf8.split(separator: UInt8(ascii: "<"), omittingEmptySubsequences: false).dropFirst()
        if let head = parts.first, head.starts(with: "?xml".utf8),
            head.dropFirst(4).first.map({ $0 <= 0x20 }) == true
        {
            guard isUTF8(declaration: String(decoding: head, as: UTF8.self)) else { return false }
            parts = parts.dropFirst()
        }
        return parts.allSatisfy {
            switch $0.first {
            case UInt8(ascii: "?"): false
            case UInt8(ascii: "!"): $0.starts(with: "!--".utf8) || $0.starts(with: "![CDATA[".utf8)
            default: true
            }
        }
    }

    /// - Parameter declaration: The XML declaration and the text behind it.
    private static func isUTF8(declaration: String) -> Bool {
        let words = declaration.lowercased().utf8.split { " \t\r\n=\"'?>".utf8.contains($0) }.map { String($0) ?? "" }
        guard let index = words.firstIndex(of: "encoding") else { return true }
        return ["utf-8", "utf8"].contains(words[(index + 1)...].first)
    }

    private final class Reader: NSObject, XMLParserDelegate {
        private static let depthMax = 32
        private static let elementsMax = 128
        private static let nameBytesMax = 256
        private var count = 0
        private var open: [XMLElement] = []
        private(set) var root: XMLElement?
        private(set) var isRejected = false

        private func reject(_ parser: XMLParser) {
            isRejected = true
            parser.abortParsing()
        }

        func parser(
            _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?,
            attributes: [String: String]
        ) {
            count += 1
            guard open.count < Self.depthMax, root == nil, count <= Self.elementsMax,
                name.utf8.count <= Self.nameBytesMax, (namespaceURI ?? "").utf8.count <= Self.nameBytesMax
            else { return reject(parser) }
            let local = name.split(separator: ":").last.map(String.init) ?? name
            open.append(XMLElement(name: XMLName(namespace: namespaceURI ?? "", local: local)))
        }

        func parser(
            _ parser: XMLParser, didEndElement name: String, namespaceURI: String?, qualifiedName: String?
        ) {
            guard let element = open.popLast() else { return reject(parser) }
            guard !open.isEmpty else { return root = element }
            open[open.count - 1].nodes.append(.element(element))
        }

        func parser(_ parser: XMLParser, foundCharacters text: String) {
            guard !open.isEmpty else { return }
            open[open.count - 1].nodes.append(.text(text))
        }

        func parser(_ parser: XMLParser, foundCDATA block: Data) {
            guard !open.isEmpty else { return }
            open[open.count - 1].nodes.append(.text(String(decoding: block, as: UTF8.self)))
        }

        func parser(_ parser: XMLParser, foundInternalEntityDeclarationWithName name: String, value: String?) {
            reject(parser)
        }

        func parser(
            _ parser: XMLParser, foundExternalEntityDeclarationWithName name: String, publicID: String?,
            systemID: String?
        ) { reject(parser) }

        func parser(_ parser: XMLParser, parseErrorOccurred parseError: any Error) { isRejected = true }
    }
}

/// XML as it is written.
enum XMLText {
    static let head = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"

    /// The text for between elements or within quotes. Characters that XML cannot have become U+FFFD.
    static func escaped(_ text: String) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count)
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": bytes += Array("&amp;".utf8)
            case "<": bytes += Array("&lt;".utf8)
            case ">": bytes += Array("&gt;".utf8)
            case "\"": bytes += Array("&quot;".utf8)
            case "\t", "\n": bytes += Array(UTF8.encode(scalar) ?? .init())
            case "\r": bytes += Array("&#13;".utf8)
            case _ where scalar.value < 0x20 || scalar.value == 0xfffe || scalar.value == 0xffff:
                bytes += [0xef, 0xbf, 0xbd]
            default: bytes += Array(UTF8.encode(scalar) ?? .init())
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
