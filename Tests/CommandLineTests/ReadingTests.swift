import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Reads ask the server first; what the commands say of keys, records and devices is so.
@Suite(.serialized) struct ReadingTests {
    private static var asOf: Regex<Substring> {
        /The server did not answer; this is this device's copy as of \d\d:\d\d\.\n/
    }

    @Test func aReadShowsWhatOthersHaveJustWritten() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            for device in [one, other] {
                for command in [["kv", "sync"], ["docs", "ls"], ["records", "ls"]] {
                    #expect(try await device.run(command).status == 0)
                }
            }
            #expect(try await other.run("kv", "set", "later", "1").status == 0)
            #expect(try await other.run("docs", "mkdir", "later").status == 0)
            #expect(try await other.run("records", "save", "later", "n=1", "--type", "T").status == 0)
            let get = try await one.run("kv", "get", "later")
            #expect(get.status == 0 && get.output == "1\n" && get.errors.isEmpty, "\(get)")
            #expect(try await one.run("kv", "list").output.contains("later"))
            #expect(try await one.run("docs", "ls").output.contains("later"))
            #expect(try await one.run("records", "get", "later").status == 0)
            // And while another program of the home follows the server.
            let watch = try one.start(["watch"])
            defer { watch.signal(SIGKILL) }
            try await eventually("it follows") { watch.output.contains("in sync") }
            for number in 1...5 {
                #expect(try await other.run("kv", "set", "later", "\(number)").status == 0)
                #expect(try await one.run("kv", "get", "later").output == "\(number)\n")
            }
        }
    }

    @Test func aSilentServerIsSaidWithTheAgeOfTheCopy() async throws {
        try await withHousehold { house in
            try await house.begin()
            let one = house.person
            #expect(try await one.run("kv", "set", "k", "1").status == 0)
            #expect(try await one.run("docs", "mkdir", "f").status == 0)
            #expect(try await one.run("records", "save", "r", "n=1", "--type", "T").status == 0)
            let file = house.folder + "/letter.txt"
            try Data("Dear all".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", file, "letter.txt").status == 0)
            for command in [["kv", "list"], ["docs", "ls"], ["records", "ls"]] {
                #expect(try await one.run(command).status == 0)
            }
            let reads = [
                ["kv", "get", "k"], ["kv", "list"], ["kv", "export"], ["docs", "ls"], ["docs", "tree"],
                ["docs", "find", "f"], ["docs", "cat", "letter.txt"], ["docs", "get", "letter.txt", "-"],
                ["records", "ls"], ["records", "get", "r"], ["records", "query"],
                ["records", "export"], ["records", "zones", "list"],
            ]
            func check() async throws {
                for read in reads {
                    let copy = try await one.run(read)
                    #expect(copy.status == 0 && !copy.output.isEmpty, "\(read): \(copy)")
                    #expect(copy.errors.matches(of: Self.asOf).count == 1, "\(read): \(copy)")
                    let json = try await one.run(read + ["--json"])
                    #expect(json.status == 0 && !json.output.contains("did not answer"), "\(read): \(json)")
                    let fresh = try await one.run(read + ["--fresh", "--timeout", "1"])
                    #expect(fresh.status == 5 && fresh.output.isEmpty, "\(read): \(fresh)")
                    let offline = try await one.run(read + ["--offline"])
                    #expect(offline.status == 0 && offline.errors.isEmpty, "\(read): \(offline)")
                }
            }
            let services = try [house.holder(.keyValue), house.holder(.documents), house.holder(.records)]
            for service in services { kill(service, SIGSTOP) }
            defer { for service in services { kill(service, SIGCONT) } }
            try await check()
            for service in services { kill(service, SIGCONT) }
            #expect(try await house.nephos.run("down").status == 0)
            try await check()
        }
    }

    @Test func onlyUnseenOverwritesAreConflicts() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            for number in 1...4 {
                #expect(try await one.run("kv", "set", "own", "\(number)").status == 0)
                let device = number % 2 == 0 ? one : other
                #expect(try await device.run("kv", "set", "shared", "\(number)").status == 0)
                try await Task.sleep(for: .milliseconds(150))
            }
            #expect(try await one.run("conflicts").output == "Nothing conflicts.\n")
            #expect(try await one.run("history").output.contains("own = 3\n"))
            // Both write without knowing of the other; the later one is sent first.
            #expect(try await other.run("kv", "sync").status == 0)
            #expect(try await one.run("kv", "set", "shared", "of one", "--offline").status == 0)
            #expect(try await other.run("kv", "set", "shared", "of other", "--offline").status == 0)
            // The earlier one is sent first.
            #expect(try await one.run("kv", "sync").status == 0)
            #expect(try await other.run("kv", "sync").status == 0)
            for device in [one, other] {
                let conflicts = try await device.run("conflicts")
                #expect(conflicts.status == 0, "\(conflicts)")
                #expect(conflicts.output.components(separatedBy: "  written  ").count == 2, "\(conflicts)")
                #expect(conflicts.output.contains("shared = of one\n"), "\(conflicts)")
                #expect(conflicts.output.contains("replaced by   of other\n"), "\(conflicts)")
            }
            let history = try await one.run("kv", "history", "shared", "--json").output
            #expect(history.components(separatedBy: #""lost_conflict":true"#).count == 2, "\(history)")
            // Either of the two lines that are printed decides it, on all devices.
            let listed = try await one.run("conflicts").output
            let keep = try #require(listed.firstMatch(of: /or keep this  (nephos kv resolve .*)/)?.1)
            #expect(try await one.run(shell: String(keep)).output == "Resolved 1 conflict.\n")
            #expect(try await one.run(shell: String(keep)).status == 2)
            #expect(try await other.run("conflicts").output == "Nothing conflicts.\n")
            #expect(try await one.run("kv", "get", "shared").output == "of other\n")
            #expect(try await one.run("history").output.contains("shared = of one\n"))
            #expect(try await one.run("kv", "set", "shared", "third", "--offline").status == 0)
            #expect(try await other.run("kv", "set", "shared", "fourth").status == 0)
            #expect(try await one.run("kv", "sync").status == 0)
            // The line that was printed before decides nothing of what has come since.
            #expect(try await one.run(shell: String(keep)).status == 2)
            let again = try await other.run("conflicts").output
            let back = try #require(again.firstMatch(of: /get it back   (nephos kv set .*)/)?.1, "\(again)")
            #expect(try await other.run(shell: String(back)).status == 0)
            #expect(try await one.run("conflicts").output == "Nothing conflicts.\n")
        }
    }

    @Test func aNewDeviceWritesOverWhatTheServerHas() async throws {
        try await withTenant { house in
            let preload = try house.makeSlowClock()
            #expect(try await house.person.run("kv", "set", "k", "before").status == 0)
            var late = try await house.anotherDevice("late")
            late.environment["LD_PRELOAD"] = preload
            let set = try await late.run("kv", "set", "k", "after")
            #expect(set.status == 0 && set.output == "Set k.\n", "\(set)")
            #expect(try await house.person.run("kv", "get", "k").output == "after\n")
            // Without asking, its clock makes the write an old one; that is said when it is sent.
            #expect(try await house.person.run("kv", "set", "k", "again").status == 0)
            var offline = try await house.anotherDevice("offline")
            offline.environment["LD_PRELOAD"] = preload
            #expect(try await offline.run("kv", "set", "k", "too late", "--offline").status == 0)
            let lost = try await offline.run("kv", "sync")
            #expect(lost.status == 0, "\(lost)")
            #expect(try await offline.run("conflicts").output.contains("k = too late\n"))
            #expect(try await offline.run("kv", "get", "k").output == "again\n")
        }
    }

    @Test func aNameThatNothingHasIsNotFound() async throws {
        try await withTenant { house in
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let why = try await house.person.run("why", "nothere")
            #expect(why.status == 2 && why.errors.contains("There is no item nothere."), "\(why)")
            let known = try await house.person.run("why", "k")
            #expect(known.status == 0 && known.output == "Nothing of k waits.\n", "\(known)")
            #expect(try await house.person.run("records", "save", "r", "n=1", "--type", "T").status == 0)
            for options in [[], ["--server", "--scan"]] {
                let names = try await house.person.run(
                    ["records", "query", "--fields", "_recordName,_parent,n"] + options)
                #expect(names.output.contains(#/r +T +r +- +1 /#), "\(names)")
            }
        }
    }
}

extension Resident {
    /// A library that puts a program's clock two minutes back.
    func makeSlowClock() throws -> String {
        let source = """
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <sys/time.h>
            #include <time.h>
            int clock_gettime(clockid_t clock, struct timespec *time) {
                static int (*real)(clockid_t, struct timespec *);
                if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
                int result = real(clock, time);
                if (!result && clock == CLOCK_REALTIME) time->tv_sec -= 120;
                return result;
            }
            int gettimeofday(struct timeval *time, void *zone) {
                struct timespec now;
                clock_gettime(CLOCK_REALTIME, &now);
                time->tv_sec = now.tv_sec;
                time->tv_usec = now.tv_nsec / 1000;
                return 0;
            }
            """
        let (file, library) = (folder + "/clock.c", folder + "/clock.so")
        try Data(source.utf8).write(to: URL(fileURLWithPath: file))
        let compiler = Process()
        compiler.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        compiler.arguments = ["clang", "-shared", "-fPIC", "-o", library, file, "-ldl"]
        try compiler.run()
        compiler.waitUntilExit()
        try #require(compiler.terminationStatus == 0)
        return library
    }
}
