import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Diff: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Compare local files with the container, or two versions of a file.",
            discussion: """
                The list shows each difference: changed here (docs put sends it), changed there (docs get \
                fetches it), changed on both sides or never fetched (a conflict), only here, only there, or \
                deleted there. The command changes nothing. Exit code 6: something differs.

                With --versions or --version-id two versions of a text are compared line by line. By default \
                each version that lost a conflict is compared with the current one; without a conflict, the \
                previous version is. One --version-id is compared with the current version, two with each other. \
                Lines with - are only in the first version, lines with + only in the second.
                """)

        @Argument(help: "The local file or folder; with --versions the file in the container.", completion: .file())
        var local: String
        @Argument(help: "The item or folder to compare with (default: the same name in Documents).")
        var path: DocumentArgument?
        @Flag(name: [.customShort("r"), .long], help: "Also compare folders, with all their content.") var recursive =
            false
        @Flag(help: "Read every file, even if its size and times are unchanged.") var checksum = false
        @Flag(help: "Compare versions that the server keeps.") var versions = false
        @Option(name: .long, help: "A version (nephos docs versions); at most two.")
        var versionID: [String] = []
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        private var comparesVersions: Bool { versions || !versionID.isEmpty }

        func validate() throws {
            guard versionID.count <= 2 else { throw ValidationError("Name two versions at most.") }
            guard !comparesVersions || path == nil && !recursive && !checksum else {
                throw ValidationError("Versions are of one file in the container: no second path, -r or --checksum.")
            }
        }

        private func compareVersions() async throws {
            let named = try versionID.map { try DocumentID(version: $0) }
            try await container.withContainer(network) { container, session in
                let item = try await container.requireItem(at: DocumentArgument(local))
                let diff = VersionDiff(container, item, timeout: network.duration)
                let pairs = try await diff.pairs(named)
                let names = await DeviceNames(session, within: network.duration)
                var found: [VersionDiff.Difference] = []
                for (first, second) in pairs { found.append(try await diff.difference(of: first, to: second, names)) }
                try output.print(
                    found,
                    text: found.isEmpty ? "There is one version." : found.map(\.text).joined(separator: "\n"))
            }
        }

        func run() async throws {
            if comparesVersions { return try await compareVersions() }
            try await container.withContainer(network) { container, _ in
                let file = LocalPath(local).named
                let address = path ?? DocumentArgument("")
                let item = try await container.item(at: address)
                var place = try await container.localFiles.imports.path(address)
                // As with put: a folder takes in a file, and without a path both have their own names.
                let isIntoFolder = try item?.kind == .folder && !file.isFolder
                if path == nil || isIntoFolder { place = place.appending(Data(file.name)) }
                var files = LocalFiles(
                    recursive: recursive, packages: false, databases: .put,
                    key: try await container.localFiles.imports.nameKey()
                ) { path throws(CloudError) in try container.packages.isPackage(at: path) }
                files.add(file, at: place)
                var listing = DifferenceListing(files.failures)
                try await listing.add(files.all, of: container, basis: .record, readsAll: checksum)
                if try file.isFolder { try await listing.addOthers(in: place, of: container) }
                try listing.print(output, as: .diff)
            }
        }
    }
}

/// Files and items that differ, as a person and `--json` are told.
struct DifferenceListing {
    /// The purpose of a listing: its sentence and exit code differ.
    enum Purpose { case diff, put, get }

    private struct Row: Encodable {
        /// The kind of difference, such as `changed_here`; nil when the comparison failed.
        var state: String?
        var path: String
        var file: String?
        var movedFrom: String?
        var failure: ItemFailures.Row?
    }

    private var rows: [Row] = []
    private var sameCount = 0
    private var seen: Set<String> = []
    private var failures: ItemFailures

    init(_ failures: ItemFailures = ItemFailures()) { self.failures = failures }

    mutating func add(
        _ sources: [LocalFiles.Source], of container: UbiquityContainer, basis: PutBasis, readsAll: Bool
    ) async throws {
        let differences = try await container.localFiles.imports.compare(
            sources.map(\.source), basis: basis, readsAll: readsAll)
        for (source, difference) in zip(sources, differences) {
            switch difference {
            case .failure(let error): failures.add(source.name, error)
            case .success(let difference): add(difference, source.name)
            }
        }
    }

    private mutating func add(_ difference: LocalDifference, _ file: String) {
        seen.insert(difference.path)
        guard difference.kind != .same || difference.movedFrom != nil else {
            sameCount += 1
            return
        }
        rows.append(
            Row(state: difference.kind.rawValue, path: difference.path, file: file, movedFrom: difference.movedFrom))
    }

    /// Adds the result of a get of one item.
    mutating func add(_ kind: LocalDifference.Kind, _ path: String, _ file: LocalPath) {
        guard kind != .same else {
            sameCount += 1
            return
        }
        rows.append(Row(state: kind.rawValue, path: path, file: file.text))
    }

    mutating func add(_ path: String, _ error: CloudError) { failures.add(path, error) }

    /// Adds items of the folder that have no local file.
    mutating func addOthers(in folder: DocumentPath, of container: UbiquityContainer) async throws {
        guard let top = try await container.item(at: folder.text), top.kind == .folder else { return }
        for item in try await container.items(in: top.id) where !seen.contains(item.path) {
            rows.append(Row(state: LocalDifference.Kind.onlyThere.rawValue, path: item.path))
        }
    }

    /// - Throws: ``ExitStatus`` of what failed; ``ExitStatus/outOfStep`` where a comparison has found something.
    func print(_ output: OutputOptions, as purpose: Purpose) throws {
        let failed = failures.rows.map { Row(path: $0.path, failure: $0) }
        failures.list(purpose == .diff ? "not compared" : purpose == .put ? "not put" : "not got")
        var lines = rows.map { Self.line($0, purpose) }
        let same = sameCount == 1 ? "1 is the same" : "\(sameCount) are the same"
        lines.append(rows.isEmpty ? "Nothing differs: \(same)." : "\(rows.count) differ, \(same).")
        try output.print(rows + failed, text: lines.joined(separator: "\n"))
        try failures.end()
        if purpose == .diff, !rows.isEmpty { throw ExitStatus.outOfStep }
    }

    private static func line(_ row: Row, _ purpose: Purpose) -> String {
        let words =
            switch row.state.flatMap(LocalDifference.Kind.init) {
            case .changedHere: "changed here"
            case .changedThere: "changed there"
            case .conflict: "conflict"
            case .onlyHere: "only here"
            case .onlyThere: "only there"
            case .deletedThere: "deleted there"
            case .same, nil: "moved there"
            }
        let moved = row.movedFrom.map { ", moved from \(inLine($0))" } ?? ""
        let file = row.file.map { inLine($0) + " and " } ?? ""
        return "\(words): \(file)\(inLine(row.path))\(moved)"
    }
}
