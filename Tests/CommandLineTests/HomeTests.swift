import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Several processes of one home: one of them is connected, all are told, and none waits for another that cannot go on.
@Suite(.serialized) struct HomeTests {
    /// Connections over TCP of a process.
    private func connections(_ pid: pid_t) throws -> Int {
        let folder = "/proc/\(pid)/fd"
        let sockets = try FileManager.default.contentsOfDirectory(atPath: folder).compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "\(folder)/\($0)")
        }
        // The tenth field is the socket's inode.
        let file = try #require(FileHandle(forReadingAtPath: "/proc/\(pid)/net/tcp"))
        let table = try file.readToEnd() ?? Data()
        let known = String(decoding: table, as: UTF8.self).split(separator: "\n").dropFirst()
        let inodes = Set(known.compactMap { $0.split(separator: " ").dropFirst(9).first.map { "socket:[\($0)]" } })
        return sockets.filter(inodes.contains).count
    }

    @Test func oneIsConnectedAndAnotherFollowsIt() async throws {
        try await withTenant { house in
            // Longer than a socket's address may be.
            let person = try await house.anotherDevice(String(repeating: "long-name-", count: 12))
            let other = try await house.anotherDevice("other")
            let holder = try person.start(["watch"])
            defer { holder.signal(SIGKILL) }
            try await eventually("it is connected") {
                try #require(isRunning(holder.pid), "\(holder.output)\(holder.errors)")
                return try connections(holder.pid) >= 2
            }
            let guest = try person.start(["watch"])
            defer { guest.signal(SIGKILL) }
            // What is here before it looks for the first time is nothing that it would be told of.
            try await eventually("it looks") { guest.output.contains("in sync at") }
            #expect(try await other.run("kv", "set", "first", "1").status == 0)
            try await eventually("both are told") {
                holder.output.contains("first") && guest.output.contains("first")
            }
            // It has asked for the devices' names.
            #expect(try connections(guest.pid) <= 1)
            let began = ContinuousClock.now
            let set = try await person.run("kv", "set", "mine", "1")
            #expect(set.status == 0 && !set.output.contains("kept"), "\(set)")
            #expect(ContinuousClock.now - began < .seconds(2))
            #expect(try await person.run("kv", "sync").status == 0)
            #expect(try await other.run("kv", "sync").status == 0)
            #expect(try await other.run("kv", "get", "mine").output == "1\n")

            holder.signal(SIGKILL)
            _ = await holder.outcome()
            #expect(try await other.run("kv", "set", "second", "2").status == 0)
            try await eventually("the other is connected now") { guest.output.contains("second") }
            #expect(try connections(guest.pid) >= 2)

            // It holds the home, and says nothing; nothing is on its way that would keep the database locked.
            try await Task.sleep(for: .seconds(1))
            guest.signal(SIGSTOP)
            for command in [["kv", "set", "alone", "3"], ["kv", "sync"]] {
                let outcome = try await person.run(command)
                #expect(outcome.status == 0, "\(outcome)")
            }
            #expect(try await other.run("kv", "sync").status == 0)
            #expect(try await other.run("kv", "get", "alone").output == "3\n")
            guest.signal(SIGCONT)
            #expect(try await other.run("kv", "set", "third", "3").status == 0)
            try await eventually("it goes on") { guest.output.contains("third") }
            guest.signal(SIGINT)
            _ = await guest.outcome()
        }
    }

    /// The server's key says that it is the same one: a new address needs no password.
    @Test func aNewAddressNeedsNoPassword() async throws {
        try await withTenant { house in
            var person = house.person
            person.environment["NEPHOS_PASSWORD"] = nil
            func signIn(_ connection: String, _ account: String? = nil) async throws -> Program.Outcome {
                try await person.run(
                    ["sign-in", connection, "--timeout", "5"] + (account.map { ["--account", $0] } ?? []))
            }
            let connection = house.connection
            let moved = connection.replacing("127.0.0.1", with: "localhost")
            let followed = try await signIn(moved)
            #expect(followed.status == 0 && followed.output.contains("as before"), "\(followed)")
            #expect(try await person.run("whoami").output.contains("localhost"))
            #expect(try await person.run("kv", "set", "k", "1").status == 0)

            // Where nobody answers, the address that works stays.
            let port = try #require(LocalPorts.firstFree(from: 9_000))
            let dead = moved.replacing(/:[0-9]+\//, with: ":\(port)/")
            #expect(try await signIn(dead).status == 5)
            #expect(try await person.run("kv", "sync").status == 0)
            // Nor does a sign-in that is killed while it waits leave the other address behind.
            let (listener, silentPort) = try Web.listen()
            defer { close(listener) }
            let silent = moved.replacing(/:[0-9]+\//, with: ":\(silentPort)/")
            let waiting = try person.start(["sign-in", silent, "--account", house.accountName])
            var connections = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
            try await eventually("it waits for an answer") { poll(&connections, 1, 0) == 1 }
            waiting.signal(SIGKILL)
            _ = await waiting.outcome()
            #expect(try await !person.run("whoami").output.contains(":\(silentPort)"))
            #expect(try await person.run("kv", "sync").status == 0)
            // Another key is another server, and another account another person.
            let foreign = moved.replacing(/[^\/]+$/, with: String(repeating: "1", count: 32) + "8o1")
            #expect(try await signIn(foreign).errors.contains("No password"))
            #expect(try await signIn(moved, "other").errors.contains("No password"))
            // A device that has signed out is asked.
            #expect(try await person.run("sign-out").status == 0)
            #expect(try await signIn(connection, house.accountName).errors.contains("No password"))
            // Nobody knows of whom.
            #expect(try await signIn(connection).errors.contains("--account NAME"))
        }
    }
}
