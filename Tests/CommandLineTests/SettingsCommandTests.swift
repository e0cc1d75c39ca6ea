import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// `nephos settings`, and what `nephos status` says of a deployment as a whole.
@Suite struct SettingsCommandTests {
    @Test func settingSurvivesDownAndUp() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            let setting = "NEPHOS_KEYVALUE_HEALTH_PORT=\(port)"
            let set = try await house.nephos.run("settings", "set", setting)
            #expect(set.status == 0, "\(set)")
            #expect(set.output.contains("at their next start"), "\(set)")
            for _ in 0..<2 {
                #expect(try await house.nephos.run("up").status == 0)
                #expect(try await Web.get("http://127.0.0.1:\(port)/ready").status == "200")
                #expect(try await house.nephos.run("status").output.contains(setting))
                #expect(try await house.nephos.run("down").status == 0)
            }
            let list = try await house.nephos.run("settings", "--json")
            #expect(list.output == "{\"NEPHOS_KEYVALUE_HEALTH_PORT\":\"\(port)\"}\n", "\(list)")
        }
    }

    @Test func changeRestartsOnlyTheServicesConcerned() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let before = try (keyValue: house.holder(.keyValue), records: house.holder(.records))
            let set = try await house.nephos.run("settings", "set", "NEPHOS_KEYVALUE_HEALTH_PORT=\(port)")
            #expect(set.status == 0 && set.output.contains("Restarted: keyvalue."), "\(set)")
            #expect(try await Web.get("http://127.0.0.1:\(port)/ready").status == "200")
            #expect(try house.holder(.keyValue) != before.keyValue)
            #expect(try house.holder(.records) == before.records)
            let unset = try await house.nephos.run("settings", "unset", "NEPHOS_KEYVALUE_HEALTH_PORT")
            #expect(unset.status == 0, "\(unset)")
            #expect(try await Web.get("http://127.0.0.1:\(port)/ready").status == "000")
        }
    }

    @Test func refusedValueLeavesTheSettingsAndTheService() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let set = try await house.nephos.run("settings", "set", "NEPHOS_KEYVALUE_PROFILE=huge")
            #expect(set.status == 8, "\(set)")
            #expect(set.errors.contains("NEPHOS_KEYVALUE_PROFILE"), "\(set)")
            #expect(try await house.nephos.run("settings", "--json").output == "{}\n")
            let status = try await house.nephos.run("status")
            #expect(status.output.hasPrefix("Healthy. "), "\(status)")
        }
    }

    @Test(arguments: ["NEPHOS_KEYVALUE_HELATH_PORT=1", "NEPHOS_RECORDS_PROFILE=standard", "PATH=x"])
    func unknownNameIsRefused(_ setting: String) async throws {
        try await withHousehold { house in
            let set = try await house.nephos.run("settings", "set", setting)
            #expect(set.status == 2, "\(set)")
            #expect(!FileManager.default.fileExists(atPath: house.deployment + "/settings"))
        }
    }

    /// Each name that the command takes is one that the services read.
    @Test func servicesKnowEveryName() async throws {
        try await withHousehold { house in
            var nephos = house.nephos
            let names = try await nephos.run("settings", "list", "--all").output.split(separator: "\n").map(String.init)
            #expect(names.count > 60)
            for name in names { nephos.environment[name] = "" }
            #expect(try await nephos.run("up").status == 0)
            for service in ServiceName.all {
                let log = try String(contentsOfFile: "\(house.deployment)/log/\(service).log", encoding: .utf8)
                #expect(!log.contains("no such setting"), "\(log)")
            }
        }
    }

    @Test func statusBeginsWithTheDeploymentsHealth() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            var status = try await house.nephos.run("status")
            let lines = status.output.split(separator: "\n")
            let (first, second) = (lines.first ?? "", lines.dropFirst().first ?? "")
            #expect(
                first.wholeMatch(of: /Healthy\. Nephos \S+, up for .+, 0 devices connected\./) != nil, "\(first)")
            #expect(second.wholeMatch(of: /.+ free, no restarts today, no backup yet\./) != nil, "\(second)")
            #expect(!status.output.contains("FOLLOWS") && !status.output.contains("EPOCH"))
            #expect(try await house.nephos.run("status", "-v").output.contains("EPOCH"))

            let folder = house.folder + "/backups"
            let backup = try await house.nephos.run("backup", folder)
            #expect(backup.status == 0, "\(backup)")
            #expect(try await house.nephos.run("status").output.contains("last backup just now, never verified."))
            #expect(try await house.nephos.run("backup", "verify", folder).status == 0)
            #expect(
                try await house.nephos.run("status").output.contains("last backup just now, verified just now."))

            let pid = try house.holder(.records)
            kill(pid, SIGKILL)
            try await eventually("it is started again") { (house.run.holder(of: .service(.records)) ?? pid) != pid }
            try await eventually("the log says so") {
                try String(contentsOfFile: house.deployment + "/log/supervisor.log", encoding: .utf8)
                    .contains("starts again in")
            }
            status = try await house.nephos.run("status")
            #expect(status.output.contains("1 restart today"), "\(status)")
            kill(try house.holder(.records), SIGSTOP)
            status = try await house.nephos.run("status", "--timeout", "1")
            kill(try house.holder(.records), SIGCONT)
            #expect(status.output.hasPrefix("Not healthy: records is not answering.\n"), "\(status)")
            #expect(status.status == 5)
        }
    }
}
