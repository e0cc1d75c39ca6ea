import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Cat: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the content of files, or a part of it.",
            discussion: """
                Only the needed parts are downloaded. Name a file in a package like a file in a folder: nephos \
                docs cat Letters/a.bundle/Contents/a.txt
                """)

        @Argument(help: "The files, or files in packages.") var paths: [DocumentArgument]
        @Option(name: .long, help: "This version of one file (nephos docs versions) instead of the newest.")
        var versionID: String?
        @Option(help: "Start at this byte of each file.") var offset: UInt64 = 0
        @Option(help: "Print at most this many bytes of each file (default: all).") var length: UInt64?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var transfer: TransferOptions
        // It prints what is in them; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard versionID == nil || paths.count == 1 else { throw ValidationError("A version is of one file.") }
        }

        func run() async throws {
            let version = try versionID.map { try DocumentID(version: $0) }
            try await container.withContainer(
                network.refresh, isOffline: network.offline, transfer: transfer
            ) { container, _ in
                for path in paths {
                    try await about(["path": path.text]) { try await write(path, version, of: container) }
                }
            }
        }

        private func write(
            _ path: DocumentArgument, _ version: DocumentID?, of container: UbiquityContainer
        ) async throws {
            let (sum, isBeyond) = offset.addingReportingOverflow(length ?? .max)
            let range = offset..<(isBeyond ? .max : sum)
            let found = try await container.item(at: path)
            let stream: DocumentStream
            if found == nil,
                let place = try await container.packages.place(at: path, version: version, timeout: network.duration),
                let member = place.member
            {
                guard member.kind == .file else {
                    throw CloudError(
                        .invalidArguments,
                        member.kind == .link
                            ? "This is a link in a package. Name the file that it leads to."
                            : "This is a folder in a package. Name a file in it: nephos docs ls lists them.",
                        details: ["path": place.item.path(of: member), "package": place.item.path])
                }
                stream = try await container.packages.stream(
                    member, of: place.item.id, range: range, timeout: network.duration)
            } else {
                let item = try await container.requireItem(at: path)
                guard item.kind != .package else {
                    throw CloudError(
                        .invalidArguments, "This is a package. Name a file in it: nephos docs ls lists them.",
                        details: ["path": item.path])
                }
                stream = try await container.streams.read(
                    item.id, range: range, version: version, timeout: network.duration)
            }
            for try await piece in stream { try StandardOutput.write(piece) }
        }
    }
}
