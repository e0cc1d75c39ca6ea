import Foundation
import NephosCore
import Testing

@testable import NephosKit

@Suite struct PathTests {
    @Test func aPathBeginsInDocumentsUnlessItSaysOtherwise() throws {
        for text in ["a/b", "Documents/a/b", "/Documents/a/b", "/Documents//a/b/"] {
            #expect(try DocumentPath(text).text == "/Documents/a/b")
        }
        #expect(try DocumentPath("").text == "/Documents")
        #expect(try DocumentPath("/").names.isEmpty)
        #expect(try DocumentPath("/private/x").text == "/private/x")
    }

    @Test func namesThatNoItemHasAreRefused() throws {
        for text in [".", "..", "a/../b", "a\u{0}b", String(repeating: "é", count: 128)] {
            #expect(throws: CloudError.self) { try DocumentPath(text) }
        }
        #expect(throws: CloudError.self) { try DocumentPath(String(repeating: "a/", count: 129)) }
        #expect(try DocumentPath(String(repeating: "x", count: 255)).last.count == 255)
    }

    @Test func anIdIsTheSameInAllItsForms() throws {
        var random = SplitMix64(seed: 1)
        for _ in 0..<100 {
            let id = DocumentID.random(using: &random)
            #expect(DocumentID(bytes: id.bytes) == id && DocumentID(id.description) == id)
            #expect(id.description.utf8.count == 32)
        }
        #expect(DocumentID.documents.bytes == [UInt8](repeating: 0, count: 15) + [1])
        #expect(DocumentID("0" + DocumentID.top.description) == nil)
        #expect(DocumentID(String(repeating: "A", count: 32)) == nil)
    }
}
