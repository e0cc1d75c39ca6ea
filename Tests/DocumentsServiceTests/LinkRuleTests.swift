import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// What a published file is taken for, and what it is called.
@Suite struct LinkRuleTests {
    @Test func nothingThatRunsIsShown() throws {
        let house = try ContainerHouse(linksMax: 100)
        let here = try house.device()
        let names = [
            ("a.html", "application/octet-stream"), ("a.HTM", "application/octet-stream"),
            ("a.svg", "application/octet-stream"), ("a.xml", "application/octet-stream"),
            ("a.js", "application/octet-stream"), ("a.txt.exe", "application/octet-stream"),
            ("html", "application/octet-stream"), ("png", "application/octet-stream"),
            ("a.", "application/octet-stream"),
            ("a.pdf", "application/pdf"), ("a.PNG", "image/png"), ("a.md", "text/plain; charset=utf-8"),
        ]
        for (name, type) in names {
            let answer = try house.get(here.publish(here.makeFile(name)))
            #expect(answer.header("Content-Type") == type, "\(name)")
            let isShown = type.hasPrefix("image/") || type.hasPrefix("text/plain")
            #expect(
                answer.header("Content-Disposition")?.hasPrefix(isShown ? "inline;" : "attachment;") == true, "\(name)")
        }
    }

    @Test func aNameCannotEndItsHeader() throws {
        let house = try ContainerHouse(linksMax: 100)
        let here = try house.device()
        for name in ["a\"; x=\"b", "a\r\nX: y", "a\\", "ü\u{202e}é", "%41", "日本"] {
            let header = try house.get(here.publish(here.makeFile(name))).header("Content-Disposition") ?? ""
            let plain = header.utf8.allSatisfy { (0x20...0x7e).contains($0) }
            #expect(plain && header.utf8.count { $0 == UInt8(ascii: "\"") } == 2, "\(header)")
            let encoded = header.components(separatedBy: "UTF-8''").last ?? ""
            #expect(encoded.removingPercentEncoding == name, "\(header)")
        }
    }
}
