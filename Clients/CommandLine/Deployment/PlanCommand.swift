import ArgumentParser
import Foundation
import NephosCore
import NephosWire

struct PlanCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plan", abstract: "Set how much accounts and apps may store.",
        subcommands: [List.self, Save.self, Assign.self], defaultSubcommand: List.self)

    /// A size as it is typed: `5GB`, `200 MB`, `1073741824`, `64MiB`.
    struct Size: ExpressibleByArgument {
        var bytes: UInt64

        init?(argument: String) {
            let text = argument.lowercased().replacing(" ", with: "")
            let digits = text.prefix { $0.isNumber || $0 == "." }
            let units: [String: Double] = [
                "": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1024, "mib": 1_048_576,
                "gib": 1_073_741_824, "tib": 1_099_511_627_776,
            ]
            guard let number = Double(digits), let unit = units[String(text.dropFirst(digits.count))],
                number == 0 || (1...9e18).contains(number * unit)
            else { return nil }
            bytes = UInt64(number * unit)
        }
    }

    private struct Row: Encodable {
        var plan: String
        var sizeBytes: UInt64
        /// How many have the plan; nil where that was not asked.
        var accounts: UInt32?
        var apps: UInt32?
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the plans, and how many accounts and apps use each.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let rows = try OperatorConnection(directory: deployment.directory)
                .call(.identity, WireListPlans(), returning: WireListPlansReply.self).plans
                .map { Row(plan: $0.planID, sizeBytes: $0.sizeBytes, accounts: $0.accountCount, apps: $0.appCount) }
            try output.print(
                rows,
                text: table(
                    ["PLAN", "SIZE", "ACCOUNTS", "APPS"],
                    rows.map {
                        [$0.plan, describe(bytes: $0.sizeBytes), "\($0.accounts ?? 0)", "\($0.apps ?? 0)"]
                    }))
        }
    }

    struct Save: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Create a plan, or change its size.")

        @Argument(help: "The plan's name.") var plan: String
        @Argument(help: "The size, such as 200GB or 64MiB; 0 stores nothing.") var size: Size
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireSavePlan()
            request.plan.planID = plan
            request.plan.sizeBytes = size.bytes
            _ = try OperatorConnection(directory: deployment.directory)
                .call(.identity, request, returning: WireSavePlanReply.self)
            try output.print(
                Row(plan: plan, sizeBytes: size.bytes), text: "The plan \(plan) has \(describe(bytes: size.bytes)).")
        }
    }

    struct Assign: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Assign a plan to an account, or to an app for its public databases.")

        @Argument(help: "The plan's name.") var plan: String
        @Option(help: "The account.") var account: String?
        @Option(help: "The app.") var app: String?
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard (account == nil) != (app == nil) else { throw ValidationError("Name an --account or an --app.") }
        }

        func run() throws {
            var request = WireSetPlan()
            request.planID = plan
            request.accountName = account ?? ""
            request.appID = app ?? ""
            do {
                _ = try OperatorConnection(directory: deployment.directory)
                    .call(.identity, request, returning: WireSetPlanReply.self)
            } catch var error as CloudError where error.code == .missingEntitlement {
                // To a device it is refused what does not exist; the operator may know that it does not.
                error.code = .unknownItem
                throw error
            }
            let owner = account ?? app ?? ""
            try output.print(["plan": plan, "owner": owner], text: "\(owner) has the plan \(plan) now.")
        }
    }
}
