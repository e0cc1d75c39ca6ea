import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// What an operator sees of what happened.
@Suite struct LogsTests {
    private static func objects(_ text: String) throws -> [[String: String]] {
        try text.split(separator: "\n").map {
            try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: String], "\($0)")
        }
    }

    /// In both forms: why it ended, what was done about it, and how it stopped in the end.
    @Test(arguments: ["text", "json"]) func whyAServiceEndedIsSaid(_ format: String) async throws {
        try await withHousehold { house in
            try await house.begin(["NEPHOS_LOG_FORMAT": format])
            let before = try house.holder(.keyValue)
            kill(before, SIGKILL)
            try await eventually("it is started again") {
                let now = house.run.holder(of: .service(.keyValue))
                return now != nil && now != before
            }
            var status = try await house.nephos.run("status", "--json")
            while status.status != 0 { status = try await house.nephos.run("status", "--json") }
            let said = try await house.nephos.run("logs", "--no-follow", "--service", "supervisor", "--level", "error")
            #expect(said.output.contains("keyvalue (process \(before)) ended: Killed (signal 9)"), "\(said)")
            #expect(said.output.contains("starts again in "), "\(said)")
            #expect(!said.output.contains("supervisor: begins"), "\(said)")
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            #expect(try await house.nephos.run("down").status == 0)

            let all = try Self.objects(
                try await house.nephos.run("logs", "--no-follow", "--json", "--lines", "9999").output)
            #expect(all.map { $0["time"] ?? "" } == all.map { $0["time"] ?? "" }.sorted())
            #expect(Set(all.compactMap { $0["service"] }) == Set(ServiceName.all.map(\.rawValue) + ["supervisor"]))
            let stopped = all.last { $0["service"] == "keyvalue" && $0["message"]?.contains("has stopped") == true }
            let line = (stopped ?? [:]).map { "\($0.key)=\($0.value)" }.joined(separator: " ")
            #expect(
                line.contains("reason=SIGTERM") && line.contains("requests=") && line.contains("ran_seconds="),
                "\(line)")
            #expect(line.contains("unanswered=0"), "\(line)")
            if format == "json" {
                // Each line of each file.
                for service in ServiceName.all {
                    let file = try String(contentsOfFile: "\(house.deployment)/log/\(service).log", encoding: .utf8)
                    _ = try Self.objects(file)
                }
            }
            let last = try await house.nephos.run("logs", "--no-follow", "--lines", "1").output
            #expect(last.split(separator: "\n").count == 1 && last.contains("supervisor: has ended"), "\(last)")
        }
    }

    @Test func aCrashTellsWhereItWasAndNotWhatMemoryHeld() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let before = try house.holder(.records)
            func log(_ name: String) -> String {
                FileManager.default.contents(atPath: "\(house.deployment)/log/\(name).log")
                    .map { String(decoding: $0, as: UTF8.self) } ?? ""
            }
            // The first has it tell, and another ends it: no instruction of its own does.
            kill(before, SIGSEGV)
            try await eventually("it has told") { log("records").contains("Backtrace took") || !isRunning(before) }
            // One that comes while the first is still told of may hold both up for ever.
            var next = ContinuousClock.now + .seconds(1)
            try await eventually("it is said") {
                if ContinuousClock.now > next {
                    kill(before, SIGSEGV)
                    next = .now + .seconds(3)
                }
                return log("supervisor").contains("records (process \(before)) ended: Segmentation fault")
            }
            #expect(!log("records").contains("Registers"))
        }
    }

    @Test func aFormatThatThereIsNotEndsTheStartWithItsKey() async throws {
        try await withHousehold { house in
            var nephos = house.nephos
            nephos.environment["NEPHOS_LOG_FORMAT"] = "xml"
            let up = try await nephos.run("up", "--timeout", "10")
            #expect(up.status != 0 && up.errors.contains("NEPHOS_LOG_FORMAT"), "\(up)")
        }
    }

    @Test func linesAreFoundByServiceLevelAndRequest() async throws {
        try await withHousehold { house in
            let folder = house.deployment + "/log"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try "".write(toFile: folder + "/supervisor.log", atomically: true, encoding: .utf8)
            try """
            2026-03-01T12:00:00.001Z info keyvalue: First what="a\\\" request.id=def b"
            2026-03-01T12:00:00.003Z warning keyvalue: Third request.id=abc
            Fatal error: not good \u{1b}[2J

            """.write(toFile: folder + "/keyvalue.log", atomically: true, encoding: .utf8)
            try """
            {"time":"2026-03-01T12:00:00.002Z","level":"error","service":"records","message":"Second","cause.id":"abc"}
            {"time":"2026-03-01T12:00:00.004Z","level":"debug","service":"records","message":"Fourth"}

            """.write(toFile: folder + "/records.log", atomically: true, encoding: .utf8)
            func found(_ arguments: String...) async throws -> [String] {
                let said = try await house.nephos.run(["logs", "--no-follow"] + arguments)
                #expect(said.status == 0, "\(said)")
                return said.output.split(separator: "\n").map(String.init)
            }
            let all = try await found()
            #expect(
                all.count == 5 && all[0].contains("First") && all[1].hasSuffix("records: Second cause.id=abc"), "\(all)"
            )
            #expect(
                all[3].hasPrefix("2026-03-01T12:00:00.003Z error keyvalue: Fatal error") && !all[3].contains("\u{1b}"))
            #expect(try await found("--level", "warning").count == 3)
            #expect(try await found("--request", "abc").count == 2)
            #expect(try await found("--request", "ab").isEmpty)
            // Within a value it is none.
            #expect(try await found("--request", "def").isEmpty)
            #expect(
                try await found("--service", "records", "--lines", "1") == [
                    "2026-03-01T12:00:00.004Z debug records: Fourth"
                ])
            #expect(try await found("--service", "records", "--service", "keyvalue").count == 5)
            for wrong in [["--service", "nothing"], ["--level", "loud"], ["--lines", "-1"]] {
                #expect(try await house.nephos.run(["logs"] + wrong).status == 64)
            }
        }
        try await withHousehold { house in
            let none = try await house.nephos.run("logs")
            #expect(none.status == 2 && none.errors.contains("journalctl"), "\(none)")
        }
    }

    @Test func logsStayShortAndAreFollowedWhileTheyAreCut() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let follow = try house.nephos.start(["logs", "--service", "keyvalue"])
            try await eventually("it shows what there is") { follow.output.contains("keyvalue") }
            let path = house.deployment + "/log/keyvalue.log"
            let line = "2026-03-01T12:00:00.001Z info keyvalue: " + String(repeating: "x", count: 960) + "\n"
            let file = try #require(FileHandle(forWritingAtPath: path))
            try file.seekToEnd()
            for _ in 0..<10 { try file.write(contentsOf: Data(String(repeating: line, count: 1000).utf8)) }
            try file.close()
            func size(_ path: String) -> Int {
                ((try? FileManager.default.attributesOfItem(atPath: path))?[.size] as? NSNumber)?.intValue ?? -1
            }
            try await eventually("it is set aside") { size(path) < 1 << 20 && size(path + ".1") > 9 << 20 }
            kill(try house.holder(.keyValue), SIGTERM)
            try await eventually("what comes then is there") {
                FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }?
                    .contains("The service has stopped") == true
            }
            try await eventually("and is followed") { follow.output.contains("The service has stopped") }
            follow.signal(SIGINT)
            #expect(await follow.outcome().status == 130)
        }
    }

    /// Also where no line comes any more.
    @Test func aReaderThatGoesEndsItQuietly() async throws {
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            let piped = try await house.nephos.run(shell: "timeout 30 nephos logs | head -1; echo ${PIPESTATUS[0]}")
            #expect(piped.errors.isEmpty && !piped.output.hasSuffix("124\n"), "\(piped)")
            #expect(piped.output.split(separator: "\n").count == 2, "\(piped)")
        }
    }

    /// Also of the supervisor, which has more to do than to say what it does.
    @Test func aReaderThatGoesEndsNoService() async throws {
        try await withHousehold { house in
            let piped = try house.nephos.start(
                ["up", "--foreground"], before: ["bash", "-c", "\"$0\" \"$@\" 2>&1 | head -1"])
            try await eventually("all run") { house.held == RunFolder.Place.ofServices }
            let (supervisor, before) = (try house.holder(.supervisor), try house.holder(.keyValue))
            kill(before, SIGKILL)
            try await eventually("it is started again") {
                let now = house.run.holder(of: .service(.keyValue))
                return now != nil && now != before || !isRunning(supervisor)
            }
            #expect(isRunning(supervisor))
            #expect(try await house.nephos.run("down").status == 0)
            #expect(await piped.outcome().output.split(separator: "\n").count == 1)
        }
    }
}
