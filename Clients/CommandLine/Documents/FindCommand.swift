import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Find: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Find items by name or properties, and follow changes.",
            discussion: """
                In the pattern * means any characters and ? means one character; case is ignored. A pattern \
                without them matches a part of the name. Exit code 2: nothing was found.

                --where takes a predicate, such as 'size > 10000 AND name LIKE "*.pdf"'. Its fields are \
                \(DocumentField.allCases.map(\.rawValue).joined(separator: ", ")). One argument beside --where \
                is the folder. Use isTrashed to search the trash.

                With --watch the command prints added (+), changed (~) and removed (-) items until Ctrl-C.
                """)

        @Argument(help: "The pattern, such as '*.txt'.") var pattern: String?
        @Argument(help: "The folder to search (default: the whole container).") var path: String?
        @Option(name: .customLong("where"), help: "Only items that match this predicate.") var predicate: String?
        @Option(
            parsing: .unconditional,
            help: "Sort by fields, such as '-modified,name[cd]'; a minus reverses the order (default: path).")
        var sort: String?
        @Flag(help: "Continue, and print changes.") var watch = false
        @Option(help: "With --watch: end after this many lines of changes.") var exitAfter: Int?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard pattern != nil || predicate != nil else {
                throw ValidationError("Say what to look for: a pattern, or --where.")
            }
            guard (exitAfter ?? 1) >= 1 else { throw ValidationError("--exit-after is at least 1.") }
            guard watch || exitAfter == nil else { throw ValidationError("--exit-after goes with --watch.") }
        }

        func run() async throws {
            // Said before anybody is asked for anything.
            let isFolderAlone = predicate != nil && path == nil
            let folder = isFolderAlone ? pattern : path
            let sorts = try DocumentSort.parse(sort ?? DocumentField.path.rawValue)
            let predicate = try self.predicate(name: isFolderAlone ? nil : pattern)
            let scope = try folder.map { try DocumentQueryScope.folder($0) } ?? .container
            try await container.withContainer(network) { container, _ in
                // Else it would wait for a download that nobody has asked for.
                _ = try await container.head()
                if let folder, !watch, try await container.requireItem(at: DocumentArgument(folder)).kind != .folder {
                    throw CloudError(.unknownItem, "This is no folder.", details: ["path": folder])
                }
                var lines = FoundLines(isWatch: watch, output: output)
                let events = try container.query(predicate, scope: scope, sortedBy: sorts).makeAsyncIterator()
                var changes = 0
                while let event = try await events.next() {
                    switch event {
                    case .gathered(let entries): try lines.gathered(entries)
                    case .finishedGathering:
                        try lines.finished()
                        if !watch { return try lines.requireFound() }
                    case .updated(let update):
                        changes += try lines.updated(update)
                        if let exitAfter, changes >= exitAfter { return }
                    }
                }
            }
        }

        /// - Throws: ``CloudError``; to a person ``ExitStatus/usage``, once the place in the text was shown.
        private func predicate(name: String?) throws -> QueryPredicate {
            var parts: [PredicateNode] = []
            do throws(QueryPredicateError) {
                if let predicate { parts.append(try read(predicate).root) }
            } catch {
                guard !output.json else { throw error.cloudError }
                Standard.error("nephos: " + error.rendered(in: predicate ?? ""))
                throw ExitStatus.usage
            }
            do throws(QueryPredicateError) {
                if let name { parts.append(try Self.pattern(name)) }
                return try QueryPredicate(.and(parts))
            } catch { throw error.cloudError }
        }

        private func read(_ text: String) throws(QueryPredicateError) -> QueryPredicate {
            let predicate = try QueryPredicate(parsing: text)
            try DocumentQuery.check(predicate)
            return predicate
        }

        /// The name is like this; upper and lower case are the same.
        private static func pattern(_ text: String) throws(QueryPredicateError) -> PredicateNode {
            let isPlain = !text.contains { $0 == "*" || $0 == "?" }
            let like = text.replacing("\\", with: "\\\\")
            guard let name = FieldName(DocumentField.name.rawValue) else { return .constant(false) }
            return .comparison(
                PredicateComparison(
                    name, .like, [.string(isPlain ? "*\(like)*" : like)], folding: .caseInsensitive))
        }
    }
}

/// What was found, as it comes: nothing is kept.
private struct FoundLines {
    let isWatch: Bool
    let output: OutputOptions
    private var count = 0

    private struct Line: Encodable {
        var event: String
        var item: DocumentRow?
        var id: String?
        var path: String?
    }

    init(isWatch: Bool, output: OutputOptions) {
        self.isWatch = isWatch
        self.output = output
    }

    mutating func gathered(_ entries: [DocumentEntry]) throws {
        for entry in entries {
            count += 1
            if isWatch {
                try print(Line(event: "found", item: DocumentRow(entry)), inLine(entry.path))
            } else if output.json {
                try StandardOutput.write((count == 1 ? "[" : ",") + OutputOptions.encode(DocumentRow(entry)))
            } else {
                try StandardOutput.line(inLine(entry.path))
            }
        }
    }

    func finished() throws {
        if isWatch {
            if output.json { try output.print(Line(event: "gathered"), text: "") }
        } else if output.json {
            try StandardOutput.write(count == 0 ? "[]\n" : "]\n")
        }
    }

    /// - Returns: How many lines that were.
    func updated(_ update: DocumentQuery.Update) throws -> Int {
        for item in update.removed {
            try print(
                Line(event: "removed", id: item.id.description, path: item.path), "- \(inLine(item.path))")
        }
        for entry in update.added {
            try print(Line(event: "added", item: DocumentRow(entry)), "+ \(inLine(entry.path))")
        }
        for entry in update.changed {
            try print(Line(event: "changed", item: DocumentRow(entry)), "~ \(inLine(entry.path))")
        }
        return update.removed.count + update.added.count + update.changed.count
    }

    private func print(_ line: Line, _ text: String) throws { try output.print(line, text: text) }

    func requireFound() throws { if count == 0 { throw ExitStatus.notFound } }
}
