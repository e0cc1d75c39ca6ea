import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Whatever happened to what runs: the next command says what is true, and puts it right.
@Suite(.serialized) struct SupervisorTests {
    @Test func servicesEndWithTheirSupervisorHoweverItEnds() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            #expect(house.held.count == 6)
            let before = try house.holder(.keyValue)
            kill(try house.holder(.supervisor), SIGKILL)

            let up = try await house.nephos.run("up")
            #expect(up.status == 0, "\(up.errors)")
            #expect(house.held.count == 6)
            #expect(try house.holder(.keyValue) != before)

            kill(try house.holder(.supervisor), SIGKILL)
            try await eventually("the services end by themselves") { house.held.isEmpty }
            let status = try await house.nephos.run("status")
            #expect(status.status == 5)
            #expect(status.output.contains("The deployment is stopped."))
            let down = try await house.nephos.run("down")
            #expect(down.status == 0)
            #expect(down.output.contains("It is not running."))
        }
    }

    @Test func aClosedTerminalDoesNotEndWhatNohupHasStarted() async throws {
        try await withHousehold { house in
            let starting = try house.nephos.start(["up"], before: ["nohup"])
            try await eventually("it has begun") { !house.held.isEmpty }
            starting.signal(SIGHUP)
            let started = await starting.outcome()
            #expect(started.status == 0 && house.held.count == 6, "\(started)")
            #expect(try await house.nephos.run("down").status == 0)
            let up = try house.nephos.start(["up", "--foreground"], before: ["nohup"])
            try await eventually("it is up") { house.held.count == 6 }
            up.signal(SIGHUP)
            try await Task.sleep(for: .seconds(2))
            #expect(isRunning(up.pid) && house.held.count == 6)
            up.signal(SIGTERM)
            _ = await up.outcome()
            #expect(house.held.isEmpty)
        }
    }

    @Test func aServicesMemoryIsLimited() async throws {
        try await withHousehold { house in
            var nephos = house.nephos
            nephos.environment["NEPHOS_MEMORY_BYTES_MAX"] = "1000000000"
            nephos.environment["NEPHOS_RECORDS_MEMORY_BYTES_MAX"] = "500000000"
            #expect(try await nephos.run("up").status == 0)
            for (service, limit) in [(ServiceName.keyValue, 1_000_000_000), (.records, 500_000_000)] {
                let file = try #require(
                    FileHandle(forReadingAtPath: "/proc/\(try house.holder(.service(service)))/limits"))
                let limits = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self)
                let data = limits.split(separator: "\n").first { $0.hasPrefix("Max data size") }
                #expect(data?.contains(" \(limit) ") == true, "\(limits)")
            }
            #expect(try await nephos.run("down").status == 0)
            nephos.environment["NEPHOS_MEMORY_BYTES_MAX"] = "1000"
            // It ends as soon as one of them could not start twice.
            let up = try await nephos.run("up", "--timeout", "120")
            #expect(up.status != 0 && (up.output + up.errors).contains("at least 268435456 bytes"), "\(up)")
        }
    }

    @Test func downEndsWhatAKilledSupervisorLeft() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            // It can not see that its supervisor is gone.
            let stopped = try house.holder(.records)
            kill(stopped, SIGSTOP)
            kill(try house.holder(.supervisor), SIGKILL)
            try await eventually("the others end") { house.held == [.service(.records)] }
            let status = try await house.nephos.run("status")
            #expect(status.output.contains("nephos up was ended from outside"))
            let down = try await house.nephos.run("down")
            #expect(down.status == 0)
            #expect(down.output.contains("records"))
            #expect(house.held.isEmpty)
            #expect(!isRunning(stopped))
        }
    }

    @Test func whatRunsAndDoesNotAnswerHasNotEnded() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let stopped = try house.holder(.records)
            kill(stopped, SIGSTOP)
            defer { kill(stopped, SIGCONT) }
            let status = try await house.nephos.run("status")
            #expect(status.status == 5)
            #expect(status.output.contains("runs, and does not answer"), "\(status.output)")
            #expect(status.output.contains("kill -CONT \(stopped)"), "\(status.output)")
            #expect(!status.output.contains("They ended because"), "\(status.output)")
            let up = try await house.nephos.run("up", "--timeout", "3")
            #expect(up.status == 5)
            #expect(up.errors.contains("runs, and does not answer"), "\(up.errors)")
        }
    }

    @Test func aServiceThatCannotStartLeavesNothingRunning() async throws {
        try await withHousehold { house in
            // It refuses to keep anything where others can read it.
            let data = house.deployment + "/data/documents"
            chmod(data, 0o755)
            let failed = try await house.nephos.run("up")
            #expect(failed.status == 8)
            #expect(failed.errors.contains("documents"))
            #expect(failed.errors.contains("chmod 700"), "\(failed.errors)")
            #expect(house.held.isEmpty)

            chmod(data, 0o700)
            #expect(try await house.nephos.run("up").status == 0)
        }
    }

    @Test func twoAtOnceAreOne() async throws {
        try await withHousehold { house in
            let first = try house.nephos.start(["up"])
            let second = try house.nephos.start(["up"])
            let outcomes = [await first.outcome(), await second.outcome()]
            #expect(outcomes.map(\.status) == [0, 0], "\(outcomes)")
            #expect(outcomes.count { $0.output.contains("The five services are up") } == 1)
            #expect(house.held.count == 6)
            #expect(try await house.nephos.run("down").output.contains("Stopped."))
            #expect(house.held.isEmpty)
        }
    }

    @Test func oneThatRunsIsNotTakenForAnotherProgram() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let pid = try house.holder(.supervisor)
            let second = try await house.nephos.run("up", "--foreground")
            #expect(second.status == 1 && second.errors.contains("It runs already"), "\(second)")
            #expect(second.errors.contains("\(pid)") && !second.errors.contains("program"), "\(second)")
            #expect(try house.holder(.supervisor) == pid && house.held.count == 6)
        }
    }

    @Test func anInterruptedStartTakesBackWhatItBegan() async throws {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            try await withHousehold { house in
                // A service that runs, but whose key is not the one of the roster, never answers.
                let files = DeploymentFiles(directory: house.deployment)
                var secrets = try files.secrets(of: .documents)
                secrets.secretKey = try files.secrets(of: .records).secretKey
                try files.write(secrets)
                let up = try house.nephos.start(["up"])
                try await eventually("all run") { house.held.count == 6 }
                up.signal(signal)
                let outcome = await up.outcome()
                #expect(outcome.status == 130, "\(outcome)")
                #expect(house.held.isEmpty)
            }
        }
    }

    @Test func aFullDiskEndsNoSupervisor() async throws {
        try await withHousehold { house in
            for log in ["supervisor"] + ServiceName.all.map(\.rawValue) {
                let path = "\(house.deployment)/log/\(log).log"
                try? FileManager.default.removeItem(atPath: path)
                try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "/dev/full")
            }
            let up = try await house.nephos.run("up")
            try #require(up.status == 0, "\(up.errors)")
            let supervisor = try house.holder(.supervisor)
            let before = try house.holder(.keyValue)
            kill(before, SIGKILL)
            try await eventually("it is started again") {
                let now = house.run.holder(of: .service(.keyValue))
                return now != nil && now != before
            }
            #expect(try house.holder(.supervisor) == supervisor)
        }
    }

    @Test func theFolderOfWhatRunsMayVanish() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            try FileManager.default.removeItem(atPath: house.deployment + "/run")
            try await eventually("everybody takes its place again") { house.held.count == 6 }
            #expect(try await house.nephos.run("status").status == 0)
            #expect(try await house.nephos.run("down").output.contains("Stopped."))
            #expect(house.held.isEmpty)
        }
    }

    /// Who names a home asks for it, beside a deployment too; of one that nobody named nothing is missed.
    @Test func aMistypedHomeIsNotPassedOver() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            #expect(try await house.nephos.run("status").status == 0)
            let mistyped = try await house.nephos.run("status", "--home", house.folder + "/mistyped")
            #expect(mistyped.status == 4 && mistyped.errors.contains("mistyped"), "\(mistyped)")
        }
    }

    @Test func theLogSaysWhyAServiceEnded() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let killed = try house.holder(.keyValue)
            kill(killed, SIGKILL)
            try await eventually("it is written") {
                let log = FileManager.default.contents(atPath: house.deployment + "/log/supervisor.log") ?? Data()
                return String(decoding: log, as: UTF8.self)
                    .contains("keyvalue (process \(killed)) ended: Killed (signal 9)")
            }
        }
    }
}
