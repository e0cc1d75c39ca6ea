import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Attributes: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show an item's tags, favourite rank and extended attributes.",
            discussion: """
                Change them with nephos docs set. Extended attributes are shown as text if they are text. With \
                --json each also appears in base64.
                """)

        @Argument(help: "The item.") var path: DocumentArgument
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        struct Row: Encodable {
            struct Extended: Encodable {
                var name: String
                /// Base64.
                var value: String
                /// The same, where it is text.
                var text: String?
            }

            var path: String
            /// Milliseconds since 1970, negative before.
            var created: Int64?
            var executable: Bool
            var tags: [String]
            /// Where it stands among the favourites; nil: it is none.
            var favourite: Int64?
            var doNotBackUp: Bool
            var attributes: [Extended]
        }

        func run() async throws {
            try await container.withContainer(network) { container, _ in
                let item = try await container.requireItem(at: path)
                let attributes = try await container.attributes(of: item.id)
                let extended = attributes.extended.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map {
                    Row.Extended(
                        name: String(decoding: $0.key, as: UTF8.self), value: $0.value.base64EncodedString(),
                        text: String(validating: $0.value, as: UTF8.self))
                }
                let row = Row(
                    path: item.path, created: attributes.created?.milliseconds, executable: attributes.isExecutable,
                    tags: attributes.tags, favourite: attributes.favouriteRank == 0 ? nil : attributes.favouriteRank,
                    doNotBackUp: attributes.isExcludedFromBackup, attributes: extended)
                try output.print(row, text: Self.text(row, attributes))
            }
        }

        private static func text(_ row: Row, _ attributes: DocumentAttributes) -> String {
            var lines = [
                "created       \(attributes.created.map { describe($0) } ?? "-")",
                "executable    \(row.executable ? "yes" : "no")",
                "tags          \(row.tags.isEmpty ? "-" : row.tags.map(inLine).joined(separator: ", "))",
                "favourite     \(row.favourite.map { "\($0)" } ?? "-")",
                "backed up     \(row.doNotBackUp ? "no" : "yes")",
            ]
            for attribute in row.attributes {
                let value = attribute.text.map(inLine) ?? "base64 \(attribute.value)"
                lines.append("\(inLine(attribute.name))=\(value.cut(toCells: 200))")
            }
            return lines.joined(separator: "\n")
        }
    }

    struct SetAttributes: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "set", abstract: "Change the tags, favourite rank and extended attributes of items.",
            discussion: """
                Properties that you do not name stay unchanged, and no content is sent. Extended attributes with \
                names that begin with user. are copied with the file by get and put. An attribute that was \
                removed from the local file stays with the item until you remove it here.
                """)

        /// `yes` or `no`.
        enum Answer: String, ExpressibleByArgument, CaseIterable { case yes, no }

        /// `name=value`.
        struct Assignment: ExpressibleByArgument {
            var name: String
            var value: String

            init?(argument: String) {
                guard let sign = argument.firstIndex(of: "="), sign != argument.startIndex else { return nil }
                name = String(argument[..<sign])
                value = String(argument[argument.index(after: sign)...])
            }
        }

        @Argument(help: "The items.") var paths: [DocumentArgument]
        @Option(help: "Add a tag; repeat for more.") var tag: [String] = []
        @Option(help: "Remove a tag; repeat for more.") var untag: [String] = []
        @Option(help: "The rank among the favourites, lowest first; no: not a favourite.")
        var favourite: Favourite?
        @Option(help: "Set an extended attribute to text: user.colour=red.") var attribute: [Assignment] = []
        @Option(help: "Set an extended attribute to bytes in base64.") var attributeData: [Assignment] = []
        @Option(help: "Remove an extended attribute.") var removeAttribute: [String] = []
        @Option(help: "Leave the items out of backups: yes or no.") var doNotBackUp: Answer?
        @Option(help: "The creation date: 2026-01-31T12:00:00Z.") var created: String?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        /// A number, or `no`.
        struct Favourite: ExpressibleByArgument {
            var rank: Int64

            init?(argument: String) {
                guard let rank = argument == "no" ? 0 : Int64(argument) else { return nil }
                self.rank = rank
            }
        }

        func validate() throws {
            guard !paths.isEmpty else { throw ValidationError("Name an item.") }
            _ = try changes()
        }

        private func changes() throws -> [DocumentAttributeChange] {
            var changes = untag.map(DocumentAttributeChange.untag) + tag.map(DocumentAttributeChange.tag)
            for one in attribute + attributeData where one.value.isEmpty {
                throw ValidationError("An empty value is none. Take \(one.name) away with --remove-attribute.")
            }
            changes += removeAttribute.map(DocumentAttributeChange.removeExtended)
            changes += attribute.map { .extended($0.name, Data($0.value.utf8)) }
            for one in attributeData {
                guard let value = Data(base64Encoded: one.value) else {
                    throw ValidationError("The value of \(one.name) is no base64.")
                }
                changes.append(.extended(one.name, value))
            }
            if let favourite { changes.append(.favouriteRank(favourite.rank)) }
            if let doNotBackUp { changes.append(.excludedFromBackup(doNotBackUp == .yes)) }
            if let created {
                guard let date = DocumentDate(created), date.nanoseconds != 0 else {
                    throw ValidationError("Write a date of the years 1677 to 2262: 2026-01-31T12:00:00Z.")
                }
                changes.append(.created(date))
            }
            return changes
        }

        func run() async throws {
            let changes = try changes()
            try await container.withContainer(network) { container, _ in
                guard !changes.isEmpty else {
                    throw CloudError(.invalidArguments, "Say what is to be set: see nephos docs set --help.")
                }
                let sent = try await SentDocuments(container)
                var items: [DocumentEntry] = []
                // Before any of them is changed.
                for path in paths { items.append(try await container.requireItem(at: path)) }
                for index in items.indices {
                    items[index] = try await container.setAttributes(changes, of: items[index].id)
                }
                try await sent.wait(
                    items, network, output, done: "Set for \(listed(items.map { inLine($0.path) })).")
            }
        }
    }
}

extension [UnkeptAttribute] {
    /// As `--json` prints them.
    var names: [String]? { isEmpty ? nil : map(\.name) }

    /// Says what the disk did not take: of what it refused for one reason once.
    func list() {
        for (reason, unkept) in Dictionary(grouping: self, by: \.reason).sorted(by: { $0.key < $1.key }) {
            guard let first = unkept.first else { continue }
            let others = unkept.count > 1 ? " and \(unkept.count - 1) more" : ""
            Standard.error(
                """
                nephos: the disk did not take the extended attribute \(inLine(first.name)) of \
                \(inLine(first.file))\(others): \(reason)
                """)
        }
    }
}
