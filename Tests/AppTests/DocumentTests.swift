import Foundation
import Testing

/// What the documents show is what these tests build.
@Suite struct DocumentTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    private func lines(_ path: String) throws -> [String] {
        try String(contentsOf: Self.root.appendingPathComponent(path), encoding: .utf8).components(separatedBy: "\n")
    }

    /// The blocks of Swift in a document.
    private func blocks(in path: String) throws -> [String] {
        var blocks: [String] = []
        var block: [String]?
        for line in try lines(path) {
            if line == "```swift" {
                block = []
            } else if line == "```", let lines = block {
                blocks.append(lines.joined(separator: "\n"))
                block = nil
            } else {
                block?.append(line)
            }
        }
        return blocks
    }

    /// What stands in a source: types as they are, functions without their first and last lines.
    private func pieces(of path: String) throws -> [String] {
        var pieces: [String] = []
        var piece: [String]?
        var isFunction = false
        for line in try lines(path) {
            if line.hasPrefix("func ") || line.hasPrefix("struct ") {
                isFunction = line.hasPrefix("func ")
                piece = isFunction ? [] : [line]
            } else if line == "}", var lines = piece {
                if !isFunction { lines.append(line) }
                pieces.append(lines.joined(separator: "\n"))
                piece = nil
            } else if isFunction {
                piece?.append(line.hasPrefix("    ") ? String(line.dropFirst(4)) : line)
            } else {
                piece?.append(line)
            }
        }
        return pieces
    }

    private func imports(of path: String) throws -> [String] { try lines(path).filter { $0.hasPrefix("import ") } }

    @Test func theExampleInTheReadmeIsTheOneThatIsBuilt() throws {
        let example = try pieces(of: "Tests/AppTests/ReadmeExample.swift").joined()
        #expect(try blocks(in: "README.md") == ["import NephosKit\n\n" + example])
        #expect(try imports(of: "Tests/AppTests/ReadmeExample.swift") == ["import NephosKit"])
    }

    @Test func theExamplesInTheTestingPageAreThoseThatAreRun() throws {
        var source = Substring(try lines("Tests/TestedAppTests/TestingExamples.swift").joined(separator: "\n"))
        let blocks = try blocks(in: "docs/testing.md")
        #expect(blocks.count > 5)
        for block in blocks {
            let place = try #require(source.range(of: block), "the page shows what is not built here:\n\(block)")
            source = source[place.upperBound...]
        }
        // Nothing of it is left out but comments.
        let shown = blocks.joined(separator: "\n")
        for line in try lines("Tests/TestedAppTests/TestingExamples.swift") where !line.isEmpty && !line.hasPrefix("//")
        {
            #expect(shown.contains(line))
        }
    }

    @Test func theExamplesInTheGuideAreThoseThatAreBuilt() throws {
        let pieces = try pieces(of: "Tests/AppTests/GuideExamples.swift")
        let blocks = try blocks(in: "docs/sdk.md").filter { !$0.hasPrefix(Self.manifestStart) }
        #expect(blocks.count == pieces.count && blocks.count > 5)
        for (block, piece) in zip(blocks, pieces) { #expect(block == piece) }
        #expect(try imports(of: "Tests/AppTests/GuideExamples.swift") == ["import NephosKit"])
    }

    private static let manifestStart = "// swift-tools-version: "

    @Test func theManifestInTheGuideNamesProductsThatThereAre() throws {
        let manifests = try blocks(in: "docs/sdk.md").filter { $0.hasPrefix(Self.manifestStart) }
        let manifest = try #require(manifests.first)
        let own = try lines("Package.swift")
        #expect(manifests.count == 1 && manifest.hasPrefix(own[0] + "\n"))
        let products = manifest.matches(of: #/\.product\(name: "(\w+)", package: "nephos"\)/#).map { String($0.1) }
        #expect(products == ["NephosKit", "NephosTestKit"])
        for product in products {
            #expect(own.contains { $0.contains(".library(name: \"\(product)\"") }, "\(product)")
        }
        // The guide names each library that ops/install installs for a build.
        let guide = try lines("docs/sdk.md").joined()
        let libraries = try lines("ops/install").joined(separator: "\n").matches(of: #/lib\w+-dev/#)
        #expect(libraries.count == 6)
        for library in libraries { #expect(guide.contains(library.0), "\(library.0)") }
    }

    /// ``ExampleTests`` of the command line run the program as the page says.
    @Test func tutorialShowsTheWholeProgramThatIsBuilt() throws {
        let page = try blocks(in: "docs/tutorial-app.md")
        let manifest = try #require(page.first)
        #expect(manifest.hasPrefix(Self.manifestStart) && manifest.contains(".package(path: \"../nephos\")"))
        #expect(manifest.contains(".product(name: \"NephosKit\", package: \"nephos\")"))
        let source = try lines("examples/Tutorial/main.swift")
        #expect(page.dropFirst().joined(separator: "\n\n") + "\n" == source.joined(separator: "\n"))
        let code = source.filter { !$0.isEmpty && !$0.hasPrefix("///") }
        #expect(code.count <= 60, "The page says 60 lines.")
    }

    @Test func theExamplesOnThePageOfRecordsAreThoseThatAreBuilt() throws {
        let pieces = try pieces(of: "Tests/AppTests/RecordExamples.swift")
        let blocks = try blocks(in: "docs/records.md")
        #expect(blocks.count == pieces.count && blocks.count > 5)
        for (block, piece) in zip(blocks, pieces) { #expect(block == piece) }
        #expect(try imports(of: "Tests/AppTests/RecordExamples.swift") == ["import NephosKit"])
    }
}
