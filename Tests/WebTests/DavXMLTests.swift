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

    /// Foundation's parser ends the program over one without data.
    @Test func processingInstructionsAreRefused() {
        for text in ["<?p?>", "<?p x?>", "<?xml-p?>", "<?xmlp?>"] {
            #expect(parse(#"<propfind xmlns="DAV:">\#(text)</propfind>"#) == nil)
            #expect(parse(text + #"<propfind xmlns="DAV:"/>"#) == nil)
        }
    }

    @Test(arguments: [
        #"<?xml version="1.0"\#(String(repeating: " ", count: 300))encoding="ISO-8859-1"?>"#,
        #"<?xml version="1.0" encoding="utf-16" standalone="utf-8"?>"#,
        "<?xml version='1.0'\nencoding\n=\n'ebcdic-cp-us'?>",
        "<?xml version='1.0' a='>' encoding='utf-16'?>",
    ])
    func otherEncodingsAreRefused(declaration: String) {
        #expect(parse(declaration + #"<propfind xmlns="DAV:"/>"#) == nil)
        #expect(parse("<?xml version='1.0'\r\nencoding = 'UTF-8'?>\n<a/>") != nil)
    }

    @Test("Bodies with random damage never end the program")
    func damagedBodiesAreParsed() {
        let body = Array(
            (#"<?xml version="1.0" encoding="utf-8"?><D:propfind xmlns:D="DAV:"><D:prop a="&amp;é"><x:y xmlns:x="u">"#
                + "<![CDATA[<é>]]>&#233;<!-- c --></x:y></D:prop></D:propfind>").utf8)
        let parts = [
            "<", ">", "&", "&x;", "&#0;", "&#xD800;", "%", "?>", "<?", "<!--", "]]>", "encoding", "xmlns", ":",
            "\u{ffff}", "\"", "é", "\u{feff}",
        ]
        for _ in 0..<10_000 {
            var changed = body
            for _ in 0..<Int.random(in: 1...4) {
                let start = Int.random(in: 0..<changed.count)
                let end = min(changed.count, start + Int.random(in: 0...6))
                changed.replaceSubrange(start..<end, with: Array((parts.randomElement() ?? "").utf8))
            }
            _ = XMLElement.parse(changed)
        }
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
