import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Asset: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Get a file that a record holds as an asset.",
            discussion: """
                The bytes come from this device if they are here, otherwise from the server. Each part is \
                checked. A local file is replaced completely or not at all. Without -o the bytes go to standard \
                output, which must not be a terminal. Exit code 2: there is no such record, field or asset, or \
                the server has lost it.
                """)

        @Argument(help: "The record's name.") var name: String
        @Argument(help: "The field.") var field: String
        @Option(
            name: [.customShort("o"), .customLong("output")],
            help: "The file to write; - is standard output (default).", completion: .file()) var file = "-"
        @Option(name: .long, help: "The asset's position if the field has several; the first is 0.") var index: Int?
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @Flag(help: "Ask the server for the record, without the changes pending here.") var server = false
        @OptionGroup var network: ReadOptions
        @OptionGroup var transfer: DocumentsCommand.TransferOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var record: String
            var zone: String
            var field: String
            var id: String
            var bytes: UInt64
            var file: String
        }

        func validate() throws {
            guard (index ?? 0) >= 0 else { throw ValidationError("--index is at least 0.") }
            guard !server || !network.offline else {
                throw ValidationError("--server asks the server, and --offline does not. Give one of them.")
            }
            guard file != "-" || !output.json else {
                throw ValidationError("With --json the bytes go to a file: -o FILE.")
            }
            guard file != "-" || isatty(STDOUT_FILENO) == 0 else {
                throw ValidationError("Its bytes are not for a terminal. Name a file: -o FILE, or send them elsewhere.")
            }
        }

        func run() async throws {
            Interrupt.first { LocalParts.removeAll() }
            try await database.withDatabase(isOffline: network.offline) { database, session in
                if let limits = transfer.limits { session.setTransferLimits(limits) }
                try await database.refresh(server ? nil : zone.zone, network)
                let id = RecordID(name, zone: zone.zone)
                let asset = try await find(id, in: database)
                let place = ["record": name, "zone": zone.zone, "field": field]
                guard file != "-" else {
                    let data = try await about(place) {
                        try await database.assets.data(of: asset, in: id, timeout: network.duration)
                    }
                    return try StandardOutput.write(data)
                }
                let line = ProgressLine("fetching", isShown: !output.json)
                defer { line.clear() }
                let field = field
                try await about(place) {
                    try await database.assets.download(
                        asset, of: id, to: LocalPath(file), followsLinks: true, timeout: network.duration
                    ) { done, total in
                        line.show(done: Int(clamping: done), total: Int(clamping: total), name: field)
                    }
                }
                line.clear()
                try output.print(
                    Report(
                        record: name, zone: zone.zone, field: field, id: asset.id, bytes: asset.length, file: file),
                    text: "Got \(inLine(file)) (\(describe(bytes: asset.length))).")
            }
        }

        private func find(_ id: RecordID, in database: RecordDatabase) async throws -> RecordAsset {
            let details = ["record": name, "zone": zone.zone, "field": field]
            guard let record = try await database.record(id, from: server ? .server : .local) else {
                throw CloudError(.unknownItem, "There is no such record.", details: details)
            }
            guard let value = record[field] as RecordValue? else {
                throw CloudError(.unknownItem, "The record has no such field.", details: details)
            }
            let assets = value.assets
            guard !assets.isEmpty else {
                throw CloudError(.unknownItem, "The field has no asset.", details: details)
            }
            guard index != nil || assets.count == 1 else {
                throw CloudError(
                    .invalidArguments, "The field has several assets. Say which: --index",
                    details: details.merging(["assets": "\(assets.count)"]) { $1 })
            }
            guard let index else { return assets[0] }
            guard index < assets.count else {
                throw CloudError(
                    .unknownItem, "The field has fewer assets.",
                    details: details.merging(["assets": "\(assets.count)"]) { $1 })
            }
            return assets[index]
        }
    }
}

/// The contents of assets beside lines of records: files in a folder, each called after what names its bytes.
struct AssetFolder {
    let path: String

    private func file(_ asset: RecordAsset) -> String { "\(path)/\(asset.id)" }

    /// Writes those of the record's that are not there yet.
    ///
    /// - Parameter failures: To these is added what is lost or damaged: the others are whole.
    func write(
        _ record: Record, of database: RecordDatabase, timeout: Duration, failures: inout ItemFailures
    ) async throws {
        for (field, value) in record.fields.sorted(by: { $0.key < $1.key }) {
            for asset in value.assets where asset.length > 0 {
                var status = stat()
                // It takes its place whole.
                if stat(file(asset), &status) == 0, UInt64(max(0, status.st_size)) == asset.length { continue }
                do {
                    try await about(["file": file(asset), "record": record.id.name, "field": field]) {
                        try await database.assets.download(
                            asset, of: record.id, to: LocalPath(file(asset)), followsLinks: true, timeout: timeout)
                    }
                } catch let error as CloudError where ItemFailures.concernsContent(error) {
                    failures.add("\(record.id.name) \(field)", error)
                }
            }
        }
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` where it is no folder that can be read.
    func requireReadable() throws {
        guard let files = opendir(path) else {
            let number = errno
            throw CloudError(
                number == ENOENT ? .unknownItem : .configurationInvalid,
                number == ENOENT ? "There is no such folder of assets." : "The folder of assets cannot be read.",
                details: ["folder": path, "reason": String(cString: strerror(number))])
        }
        closedir(files)
    }

    /// - Throws: ``CloudError`` where it cannot be made.
    func make() throws {
        guard mkdir(path, 0o777) == 0 || errno == EEXIST else {
            throw CloudError(
                .storageFailure, "The folder for assets cannot be made.",
                details: ["folder": path, "reason": String(cString: strerror(errno))])
        }
    }

    /// The record with its assets as they are in the folder. What is not there is the server's to have.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: a file has other bytes.
    func read(_ record: Record) async throws -> Record {
        var record = record
        for (name, value) in record.fields where !value.assets.isEmpty {
            var assets: [RecordAsset] = []
            for asset in value.assets { assets.append(try await read(asset)) }
            if case .assets = value { record.fields[name] = .assets(assets) } else { record[name] = assets[0] }
        }
        return record
    }

    private func read(_ asset: RecordAsset) async throws -> RecordAsset {
        guard asset.length > 0, access(file(asset), F_OK) == 0 else { return asset }
        let found = try await RecordAsset(contentsOf: LocalPath(file(asset)))
        guard found == asset else {
            throw CloudError(
                .constraintViolation, "The file of an asset does not have the bytes that it is called after.",
                details: ["file": file(asset)])
        }
        return found
    }
}
