import Foundation
import Testing

@testable import NephosWeb

/// Bodies that a program with an app password may send.
@Suite struct DavXMLTests {
    private func parse(_ text: String) -> XMLElement? { XMLElement.parse(Array(text.utf8)) }

    @Test func whatProgramsSendIsRead() throws {
        let body = """
            <?xml version="1.0" encoding="UTF-8"?>
            <!-- a comment --><D:propfind xmlns:D="DAV:"><D:prop><x:a xmlns:x="urn:x"><![CDATA[<é>]]></x:a></D:prop></D:propfind>
            """
        let root = try #require(parse(body))
        #expect(root.name == .dav("propfind"))
        #expect(root.first(.dav("prop"))?.elements.map(\.text) == ["<é>"])
    }

    /// Foundation's parser ends the program over some of these.
    @Test func whatIsNoPlainUTF8IsRefused() {
        let start = Array(#"<propfind xmlns="DAV:"><a"#.utf8), end = Array("/></propfind>".utf8)
        #expect(XMLElement.parse(start + end) != nil)
        #expect(XMLElement.parse(start + [0xff, 0xfe] + end) == nil)
        #expect(XMLElement.parse(start + [0x20, 0xc0, 0x80] + Array("=\"1\"".utf8) + end) == nil)
        #expect(XMLElement.parse(start + [0] + end) == nil)
        for declaration in [
            "<!DOCTYPE a>", "<!doctype a>", #"<!NOTATION n SYSTEM "x">"#, #"<!ENTITY u SYSTEM "y" NDATA n>"#,
            "<!ATTLIST y z CDATA #IMPLIED>",
        ] {
            let text = #"<?xml version="1.0" encoding="utf-16"?>"# + declaration + #"<propfind xmlns="DAV:"/>"#
            #expect(XMLElement.parse([0xff, 0xfe] + text.utf16.flatMap { [UInt8($0 & 255), UInt8($0 >> 8)] }) == nil)
            #expect(XMLElement.parse(text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }) == nil)
            #expect(parse(declaration + #"<propfind xmlns="DAV:"/>"#) == nil)
        }
        #expect(parse(#"<?xml version="1.0" encoding="utf-7"?><propfind xmlns="DAV:"/>"#) == nil)
    }

    /// Answers repeat the namespace of each element.
    @Test func namesAreBounded() {
        func body(_ count: Int, namespace: Int) -> String {
            #"<propfind xmlns="DAV:" xmlns:x="\#(String(repeating: "n", count: namespace))">"#
                + String(repeating: "<x:a/>", count: count) + "</propfind>"
        }
        #expect(parse(body(100, namespace: 200)) != nil)
        #expect(parse(body(1000, namespace: 10)) == nil)
        #expect(parse(body(1, namespace: 1000)) == nil)
        #expect(parse(String(repeating: "<a>", count: 100) + String(repeating: "</a>", count: 100)) == nil)
    }
}
