import ArgumentParser
import NephosCore
import NephosKit
import NephosWire

/// How full the plan is, and with what; and what makes room.
struct StorageCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "storage", abstract: "Show how full the plan is, and make room.",
        subcommands: [Show.self, Delete.self], defaultSubcommand: Show.self)
}

extension StorageCommand {
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show how full the plan is, by service and container.",
            discussion: """
                DOCUMENTS: the folder Documents. HIDDEN: files that apps keep outside it. VERSIONS: former \
                versions (an estimate, with the chunk lists of large files). SAME: repeated contents. The same \
                content counts once, so the total may be less than the sum.
                """)

        @OptionGroup var speaker: SpeakerOptions
        @Option(help: "The app whose public databases to show (operator only).") var app: String?
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            struct Item: Encodable {
                var service: String
                var app: String
                var device: String?
                var bytes: UInt64
                var countsOnPlan: Bool
            }
            var plan: String
            var planBytes: UInt64
            var usedBytes: UInt64
            var items: [Item]
            /// Of the apps that this device has used, the largest first.
            var containers: [ContainerStorage] = []
            /// Services that did not answer.
            var silent: [String] = []
        }

        func validate() throws {
            guard speaker.account == nil || app == nil else { throw ValidationError("Name an --account or an --app.") }
        }

        func run() async throws {
            let report = try await speaker.account == nil && app == nil ? ofDevice() : ofOperator()
            let share = report.planBytes == 0 ? 100 : Double(report.usedBytes) * 100 / Double(report.planBytes)
            var text = """
                plan  \(report.plan), \(describe(bytes: report.planBytes))
                used  \(describe(bytes: report.usedBytes)), \(percent(share)) \(bar(share))
                """
            if !report.items.isEmpty {
                let rows = report.items.map {
                    [
                        $0.service, $0.app, $0.device ?? "-",
                        describe(bytes: $0.bytes), $0.countsOnPlan ? "yes" : "no",
                    ]
                }
                text += "\n\n" + table(["SERVICE", "APP OR STORE", "DEVICE", "SIZE", "COUNTS"], rows)
            }
            if !report.containers.isEmpty { text += "\n\n" + ContainerStorage.text(report.containers) }
            if !report.silent.isEmpty {
                text += "\n\nNot listed, for want of an answer: what \(report.silent.joined(separator: ", ")) stores."
            }
            try output.print(report, text: text)
        }

        private func percent(_ share: Double) -> String {
            share > 0 && share < 1 ? "under 1 %" : "\(Int(min(share, 1e6))) %"
        }

        private func bar(_ share: Double) -> String {
            let full = min(20, max(share > 0 ? 1 : 0, Int(min(share, 100) / 5)))
            return "[" + String(repeating: "#", count: full) + String(repeating: ".", count: 20 - full) + "]"
        }

        private func ofDevice() async throws -> Report {
            try await speaker.device.withSession { session in
                _ = try session.requireAccount()
                let limit = speaker.deployment.wait.duration
                let storage = try await session.storage(timeout: limit)
                let devices = try await session.devices(timeout: limit)
                let names = DeviceNames(of: devices, session)
                let containers = try await ContainerStorage.all(of: session, within: limit)
                return Report(
                    plan: storage.plan, planBytes: storage.planBytes, usedBytes: storage.usedBytes,
                    items: storage.services.flatMap { service in
                        service.items.map {
                            Report.Item(
                                service: service.service.rawValue, app: $0.app,
                                device: $0.device.isEmpty ? nil : names[DeviceID($0.device)], bytes: $0.bytes,
                                countsOnPlan: service.countsOnPlan)
                        }
                    }, containers: containers, silent: storage.silent.map(\.rawValue))
            }
        }

        /// The operator sees how much, and not of what.
        private func ofOperator() async throws -> Report {
            var request = WireReadStorage()
            request.accountName = speaker.account ?? ""
            request.appID = app ?? ""
            let reply = try OperatorConnection(directory: speaker.deployment.directory)
                .call(.identity, request, returning: WireReadStorageReply.self)
            return Report(
                plan: reply.plan.planID, planBytes: reply.plan.sizeBytes,
                usedBytes: reply.services.reduce(0) { $0 + $1.usedBytes },
                items: reply.services.map {
                    Report.Item(service: $0.service, app: "-", device: nil, bytes: $0.usedBytes, countsOnPlan: true)
                })
        }
    }
}
