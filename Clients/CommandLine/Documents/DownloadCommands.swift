import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Download: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Download files, or all files in folders, to this device.",
            discussion: """
                They stay as long as there is room (nephos docs cache). With --pin they stay always, and new \
                files in a pinned folder are downloaded too; --no-pin ends this.

                The command waits while data arrives. Later commands, and nephos watch while it runs, fetch the \
                rest.
                """)

        @Argument(help: "The files and folders.") var paths: [DocumentArgument]
        @Flag(inversion: .prefixedNo, help: "Keep them downloaded, or stop keeping them.") var pin: Bool?
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var transfer: TransferOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network, transfer: transfer) { container, _ in
                var items: [DocumentEntry] = []
                for path in paths { items.append(try await container.requireItem(at: path)) }
                if pin == false {
                    for item in items { try await container.downloads.unpin(item.id) }
                    return try await print(items, of: container, text: "Kept downloaded no longer.")
                }
                // What is refused is not pinned either.
                if pin == true {
                    for item in items where item.isPaused { try await container.downloads.start(item.id) }
                    try await container.downloads.pin(items.map(\.id))
                }
                try await container.downloads.start(items.map(\.id))
                if network.offline {
                    return try await print(items, of: container, text: "The contents are fetched later.")
                }
                try await wait(for: items, of: container)
                let paused = try await missing(of: items, in: container, isPaused: true)
                try await print(
                    items, of: container,
                    text: paused.isEmpty
                        ? "The contents are on this device."
                        : "The contents are on this device, but for what is paused: "
                            + "\(listed(paused.map { inLine($0.path) })). Go on with: nephos docs resume")
            }
        }

        private func print(_ items: [DocumentEntry], of container: UbiquityContainer, text: String) async throws {
            var rows: [DocumentRow] = []
            for item in items { rows.append(DocumentRow(try await container.item(item.id) ?? item)) }
            try output.print(rows, text: text)
        }

        /// The files of which the contents are not here now. One that is gone is not waited for.
        ///
        /// - Parameter isPaused: Those that do not come, since their sync is paused; else the others.
        private func missing(
            of items: [DocumentEntry], in container: UbiquityContainer, isPaused: Bool = false
        ) async throws(CloudError) -> [DocumentEntry] {
            var found: [DocumentEntry] = []
            for item in items {
                if item.kind == .folder {
                    found += try await container.items(in: item.id)
                } else if let now = try await container.item(item.id) {
                    found.append(now)
                }
            }
            return found.filter { !$0.isTrashed && $0.isPaused == isPaused && $0.download.status != .current }
        }

        private static func sum(_ sizes: [UInt64]) -> UInt64 { sizes.reduce(0) { $0.addingClamped($1) } }

        /// Waits for as long as something moves.
        private func wait(for items: [DocumentEntry], of container: UbiquityContainer) async throws {
            let line = ProgressLine("fetching", isShown: !output.json)
            defer { line.clear() }
            var left = try await missing(of: items, in: container)
            let total = Self.sum(left.map(\.size))
            try await waitWhileItMoves(within: network.duration) {
                () async throws(CloudError) -> (mark: DownloadMark, failure: CloudError)? in
                var (rest, percents): ([DocumentEntry], UInt64) = ([], 0)
                for item in left {
                    guard let now = try await container.item(item.id), !now.isTrashed, !now.isPaused,
                        now.download.status != .current
                    else { continue }
                    guard now.download.isRequested || now.download.isPinned else {
                        throw CloudError(
                            .operationCancelled, "The content was to come, and is not any more.",
                            details: ["path": now.path])
                    }
                    rest.append(now)
                    percents = percents.addingClamped(now.size / 100 * UInt64(now.download.percent))
                }
                left = rest
                // What came first may have gone for what came after it.
                if left.isEmpty { left = try await missing(of: items, in: container) }
                guard let first = left.first else { return nil }
                let done = (total - min(total, Self.sum(rest.map(\.size)))).addingClamped(percents)
                line.show(done: Int(clamping: done), total: Int(clamping: total), name: first.name)
                let failure =
                    try await container.downloads.failure(of: first.id)
                    ?? CloudError(
                        .deadlineExceeded,
                        "The contents have not come in time. The next command that reaches the server goes on with them.",
                        details: ["path": first.path])
                // A percent of a long one takes its time.
                let mark = DownloadMark(done: done, beats: try await container.downloads.beats())
                do { try await Task.sleep(for: .milliseconds(100)) } catch { throw CloudError(wrapping: error) }
                return (mark, failure)
            }
        }

        /// How far what comes is: while one of these changes, it moves.
        private struct DownloadMark: Equatable {
            var done: UInt64
            var beats: Int64
        }
    }

    struct Evict: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove local copies of file contents; the server keeps them.",
            discussion: """
                The names stay visible. Some copies stay: pending uploads, conflicts, files in a pinned folder, \
                and content that the server has lost or may have lost. Naming one of these is an error (exit \
                code 1). The files that you name are no longer pinned.
                """)

        @Argument(help: "The files and folders.") var paths: [DocumentArgument]
        @OptionGroup var container: ContainerOptions
        @OptionGroup var output: OutputOptions

        struct Report: Encodable {
            var items: Int
            var bytes: UInt64
            /// Files and folders that are kept downloaded no longer.
            var unpinned: Int
            /// What stays.
            var kept: [DocumentRow]
        }

        func run() async throws {
            try await container.withContainer(within: nil) { container, _ in
                var report = Report(items: 0, bytes: 0, unpinned: 0, kept: [])
                for path in paths {
                    let dropped = try await container.downloads.evict(try await container.requireItem(at: path).id)
                    report.items += dropped.itemCount
                    report.bytes += dropped.byteCount
                    report.unpinned += dropped.unpinnedCount
                    report.kept += dropped.kept.map(DocumentRow.init)
                }
                let kept =
                    report.kept.isEmpty
                    ? "" : " \(report.kept.count) stay: unsent, in conflict, kept, or lost on the server."
                let unpinned =
                    report.unpinned == 0
                    ? ""
                    : " No longer kept downloaded: \(counted(report.unpinned, "file or folder", "files or folders"))."
                let dropped =
                    report.items == 0
                    ? "Nothing was dropped: no copy of a content was here. Short ones are kept with their names."
                    : "Dropped \(counted(report.items, "content")) (\(describe(bytes: report.bytes)))."
                try output.print(
                    report,
                    text: (report.items == 0 && !report.kept.isEmpty ? "Nothing was dropped." : dropped) + kept
                        + unpinned)
            }
        }
    }

    struct Cache: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show or limit the space for copies of files on this device.",
            discussion: """
                The device keeps copies of files and of records' assets up to this limit, and reads them without \
                the server. The least recently used copy is removed first. Pending uploads and pinned files stay \
                and do not count. The default is 1 GiB, or an eighth of the free disk space if that is less.
                """)

        @Option(name: .long, help: "The limit in bytes, such as 2GiB; 0: keep no copies; default: the default limit.")
        var limit: Limit?
        @OptionGroup var device: DeviceOptionGroup
        @OptionGroup var output: OutputOptions

        struct Limit: ExpressibleByArgument {
            /// Nil: the default.
            var bytes: UInt64?

            init?(argument: String) {
                if argument == "default" { return }
                if argument == "0" {
                    bytes = 0
                    return
                }
                guard let size = PlanCommand.Size(argument: argument) else { return nil }
                bytes = UInt64(clamping: size.bytes)
            }
        }

        struct Report: Encodable {
            var bytes: UInt64
            var maxBytes: UInt64
        }

        func run() async throws {
            try await device.withSession { session in
                if let limit { try session.setContentCache(maxBytes: limit.bytes) }
                let (bytes, maxBytes) = try session.contentCache()
                try output.print(
                    Report(bytes: bytes, maxBytes: maxBytes),
                    text: "\(describe(bytes: bytes)) of contents are here; \(describe(bytes: maxBytes)) may be.")
            }
        }
    }
}
