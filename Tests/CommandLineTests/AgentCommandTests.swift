import Foundation
import NephosCore
import NephosSimulation
import Testing

/// `nephos agent` with real programs: two devices, a folder each.
@Suite struct AgentCommandTests {
    private struct Folder {
        let path: String

        func write(_ name: String, _ text: String) throws {
            let file = URL(fileURLWithPath: path + "/" + name)
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }

        func read(_ name: String) -> String? {
            (try? Data(contentsOf: URL(fileURLWithPath: path + "/" + name))).map { String(decoding: $0, as: UTF8.self) }
        }
    }

    private func folders(_ house: some Resident, _ devices: [Program]) async throws -> [Folder] {
        var folders: [Folder] = []
        for (number, device) in devices.enumerated() {
            let folder = Folder(path: house.folder + "/agent-\(number)")
            let added = try await device.run("agent", "add", folder.path)
            #expect(added.status == 0 && added.output.contains("Start the agent"), "\(added)")
            folders.append(folder)
        }
        return folders
    }

    @Test func savedFileAppearsInTheOtherFolder() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            try folders[0].write("before.txt", "before")
            var agents = try devices.map { try $0.start(["agent", "run"]) }
            try folders[0].write("Letters/ben.txt", "Dear Ben")
            try await eventually("it comes") { folders[1].read("Letters/ben.txt") == "Dear Ben" }
            try await eventually("what was there comes too") { folders[1].read("before.txt") == "before" }
            try folders[1].write("Letters/ben.txt", "Dear Anna")
            try await eventually("it comes back") { folders[0].read("Letters/ben.txt") == "Dear Anna" }
            let status = try await devices[0].run("agent", "status")
            #expect(status.status == 0 && status.output.contains("3 items"), "\(status)")

            // A second agent of the home is refused.
            let second = try await devices[0].run("agent", "run")
            #expect(second.status == 1 && second.errors.contains("runs already"), "\(second)")

            agents[0].signal(SIGKILL)
            _ = await agents[0].outcome()
            try folders[0].write("while it was dead.txt", "sent later")
            try FileManager.default.removeItem(atPath: folders[0].path + "/before.txt")
            #expect(try await devices[0].run("agent", "status").status == 1)
            agents[0] = try devices[0].start(["agent", "run"])
            try await eventually("it goes on") { folders[1].read("while it was dead.txt") == "sent later" }
            try await eventually("the deletion comes") { folders[1].read("before.txt") == nil }
            for agent in agents {
                agent.signal(SIGTERM)
                _ = await agent.outcome()
            }
            #expect(!agents[1].output.contains("blocked"), "\(agents[1].output)")
        }
    }

    @Test func contentsLeaveTheDiskAndComeBack() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folder = try await folders(house, [devices[0]])[0]
            let second = Folder(path: house.folder + "/agent-1")
            #expect(try await devices[1].run("agent", "add", second.path, "--on-demand").status == 0)
            let text = String(repeating: "large ", count: 10_000)
            try folder.write("Videos/one.mp4", text)
            let early = try await devices[0].run("agent", "evict", folder.path)
            #expect(early.status == 1 && early.errors.contains("Start it"), "\(early)")
            let agents = try devices.map { try $0.start(["agent", "run"]) }
            try await eventually("it comes as a placeholder") {
                second.read("Videos/one.mp4.nephos") != nil && second.read("Videos/one.mp4") == nil
            }
            let evicted = try await devices[0].run("agent", "evict", folder.path + "/Videos")
            #expect(
                evicted.status == 0 && evicted.output == "1 file is a placeholder now. Freed 60.0 kB.\n", "\(evicted)")
            #expect(folder.read("Videos/one.mp4") == nil)
            #expect(try await devices[0].run("agent", "status").output.contains("of these 1 placeholder"))
            #expect(second.read("Videos/one.mp4") == nil, "\(agents[1].output)")
            // By the file's own name, and by the placeholder's.
            let names = ["/Videos/one.mp4", "/Videos/one.mp4.nephos"]
            for (device, path) in zip(devices, [folder.path + names[0], second.path + names[1]]) {
                let back = try await device.run("agent", "download", path)
                #expect(back.status == 0 && back.output == "1 file is here.\n", "\(back) \(agents[1].output)")
            }
            #expect(folder.read("Videos/one.mp4") == text && second.read("Videos/one.mp4") == text)
            let missing = try await devices[0].run("agent", "download", folder.path + "/none", "--json")
            #expect(missing.status == 1 && missing.output.contains("none"), "\(missing)")
            #expect(try await devices[0].run("agent", "download", "/none").status == 2)
            let policy = try await devices[1].run("agent", "policy", "--no-on-demand", "--keep-free", "1MB")
            #expect(policy.status == 0 && policy.output.contains("with their contents"), "\(policy)")
            for agent in agents {
                agent.signal(SIGTERM)
                _ = await agent.outcome()
            }
        }
    }

    @Test func onceSyncsAndEnds() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            try folders[0].write("a/b.txt", "text")
            for device in devices {
                let run = try await device.run("agent", "run", "--once", "--json")
                #expect(run.status == 0 && run.output.contains(#""action":"done""#), "\(run)")
            }
            #expect(folders[1].read("a/b.txt") == "text")
            #expect(try await devices[0].run("docs", "cat", "a/b.txt").output == "text")
        }
    }

    @Test func foldersAreAddedOnceAndRemovedWithoutTheirFiles() async throws {
        try await withTenant { house in
            let folder = house.folder + "/agent-folder"
            let empty = try await house.person.run("agent", "list")
            #expect(empty.status == 0 && empty.output.contains("No folder"), "\(empty)")
            #expect(try await house.person.run("agent", "add", folder).status == 0)
            for wrong in [folder, folder + "/inner", house.folder] {
                let again = try await house.person.run("agent", "add", wrong)
                #expect(again.status == 1 || again.status == 64, "\(wrong): \(again)")
            }
            #expect(try await house.person.run("agent", "list").output.contains(folder))
            let other = try await house.anotherDevice("other")
            let taken = try await other.run("agent", "add", folder)
            #expect(taken.status == 1 && taken.errors.contains("--take-over"), "\(taken)")
            try Data("mine".utf8).write(to: URL(fileURLWithPath: folder + "/mine.txt"))
            #expect(try await house.person.run("agent", "remove", folder).status == 0)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["mine.txt"])
            let gone = try await house.person.run("agent", "remove", folder)
            #expect(gone.status == 2, "\(gone)")
            #expect(try await other.run("agent", "add", folder).status == 0)
        }
    }

    @Test func pausedFolderIsLeftAlone() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            let agents = try devices.map { try $0.start(["agent", "run"]) }
            try folders[0].write("a.txt", "a")
            try await eventually("it comes") { folders[1].read("a.txt") == "a" }
            // A pass that has begun is ended: wait until there is none.
            let deadline = ContinuousClock.now + .seconds(60)
            while try await !devices[0].run("agent", "status").output.contains("in sync"), .now < deadline {
                try await Task.sleep(for: .milliseconds(50))
            }
            let paused = try await devices[0].run("agent", "pause", "--for", "1h")
            #expect(paused.status == 0 && paused.output.contains("until"), "\(paused)")
            // The folder's disk could be unmounted.
            try await eventually("it is closed") {
                !((try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(agents[0].pid)/fd")) ?? []).contains {
                    (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(agents[0].pid)/fd/\($0)"))?
                        .hasPrefix(folders[0].path) ?? false
                }
            }
            try folders[0].write("b.txt", "b")
            try folders[1].write("c.txt", "c")
            try await Task.sleep(for: .seconds(2))
            #expect(folders[1].read("b.txt") == nil && folders[0].read("c.txt") == nil)
            #expect(try await devices[0].run("status").output.contains("paused"))
            #expect(try await devices[0].run("agent", "resume").status == 0)
            try await eventually("both come") { folders[1].read("b.txt") == "b" && folders[0].read("c.txt") == "c" }
            for agent in agents {
                agent.signal(SIGTERM)
                _ = await agent.outcome()
            }
        }
    }

    /// The plan lists each change that the next run makes, and `only-here` each file until the server has it.
    @Test func planAndOnlyHereSayWhatIsThereToDo() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            for name in ["kept.txt", "moved.txt", "gone.txt", "changed.txt", "theirs.txt"] {
                try folders[0].write(name, name)
            }
            for device in devices {
                #expect(try await device.run("agent", "run", "--once").status == 0)
                let plan = try await device.run("agent", "plan")
                #expect(plan.status == 0 && plan.output == "Nothing to do.\n", "\(plan)")
                let onlyHere = try await device.run("agent", "only-here")
                #expect(onlyHere.status == 0, "\(onlyHere)")
            }
            let manager = FileManager.default
            try folders[1].write("theirs.txt", "theirs, changed")
            try folders[1].write("new there.txt", "new")
            try manager.removeItem(atPath: folders[1].path + "/kept.txt")
            #expect(try await devices[1].run("agent", "run", "--once").status == 0)

            try folders[0].write("new.txt", "new")
            try folders[0].write("stays.nosync", "never sent")
            try folders[0].write("changed.txt", "changed here")
            try manager.moveItem(atPath: folders[0].path + "/moved.txt", toPath: folders[0].path + "/elsewhere.txt")
            try manager.removeItem(atPath: folders[0].path + "/gone.txt")
            #expect(try await devices[0].run("docs", "ls").status == 0)
            let plan = try await devices[0].run("agent", "plan", "--json")
            struct Row: Decodable, Hashable {
                var action: String
                var path: String
            }
            let rows = try JSONDecoder().decode([Row].self, from: Data(plan.output.utf8))
            #expect(
                Set(rows)
                    == [
                        Row(action: "send", path: "new.txt"), Row(action: "send", path: "changed.txt"),
                        Row(action: "move", path: "elsewhere.txt"), Row(action: "delete", path: "gone.txt"),
                        Row(action: "receive", path: "theirs.txt"), Row(action: "receive", path: "new there.txt"),
                        Row(action: "remove", path: "kept.txt"), Row(action: "leave", path: "stays.nosync"),
                    ], "\(plan)")
            #expect(plan.status == 1)
            let onlyHere = try await devices[0].run("agent", "only-here")
            #expect(onlyHere.status == 1, "\(onlyHere)")
            for name in ["new.txt", "changed.txt", "stays.nosync", "3 files"] {
                #expect(onlyHere.output.contains(name), "\(onlyHere)")
            }
            #expect(!onlyHere.output.contains("elsewhere.txt"), "\(onlyHere)")
            for device in devices { #expect(try await device.run("agent", "run", "--once").status == 0) }
            #expect(try await devices[0].run("agent", "plan").output.contains("Nothing to do."))
            #expect(folders[1].read("new.txt") == "new" && folders[0].read("theirs.txt") == "theirs, changed")
            let left = try await devices[0].run("agent", "only-here")
            #expect(left.output.contains("stays.nosync") && left.output.contains("1 file is only here"), "\(left)")
        }
    }

    /// Nothing is sent or received while a command works in a folder.
    @Test func aCommandHasItsFolderAlone() async throws {
        try await withTenant { house in
            let devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            try folders[0].write("Site/old.txt", "old")
            let agents = try devices.map { try $0.start(["agent", "run"]) }
            try await eventually("it comes") { folders[1].read("Site/old.txt") == "old" }
            let script =
                "echo begun > Site/new.txt; rm Site/old.txt; while [ ! -e go ]; do sleep 0.05; done; mv Site Web; exit 99"
            let site = folders[0].path + "/Site"
            let command = try devices[0].start(
                ["agent", "coordinate", site, "--", "sh", "-c", "cd '\(folders[0].path)' && " + script])
            try await eventually("it runs") { folders[0].read("Site/new.txt") == "begun\n" }
            try folders[1].write("Site/theirs.txt", "theirs")
            try await Task.sleep(for: .seconds(3))
            #expect(folders[1].read("Site/new.txt") == nil && folders[1].read("Site/old.txt") == "old")
            #expect(folders[0].read("Site/theirs.txt") == nil)
            let status = try await devices[0].run("agent", "status")
            #expect(status.output.contains("paused") && status.output.contains("coordinate"), "\(status)")
            try folders[0].write("go", "")
            #expect(await command.outcome().status == 99)
            try await eventually("then all of it goes") {
                folders[1].read("Web/new.txt") == "begun\n" && folders[1].read("Web/old.txt") == nil
                    && folders[0].read("Web/theirs.txt") == "theirs"
            }
            // A signal ends the command too.
            let ended = try devices[0].start(["agent", "coordinate", folders[0].path, "--", "sleep", "60"])
            try await eventually("it runs") { childCount(of: ended.pid) == 1 }
            ended.signal(SIGTERM)
            #expect(await ended.outcome().status == 128 + SIGTERM)
            // One that is killed gives its folder back too.
            let killed = try devices[0].start(["agent", "coordinate", folders[0].path, "--", "sleep", "5"])
            try await eventually("it runs") { childCount(of: killed.pid) == 1 }
            try folders[0].write("last.txt", "last")
            killed.signal(SIGKILL)
            _ = await killed.outcome()
            try await eventually("it is sent") { folders[1].read("last.txt") == "last" }
            let none = try await devices[0].run("agent", "coordinate", folders[0].path, "--", "no-such-program")
            #expect(none.status == 127, "\(none)")
            for agent in agents {
                agent.signal(SIGTERM)
                _ = await agent.outcome()
            }
        }
    }

    private func childCount(of pid: Int32) -> Int {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
        return tasks.reduce(0) { count, task in
            let text = try? String(contentsOfFile: "/proc/\(pid)/task/\(task)/children", encoding: .utf8)
            return count + (text ?? "").split(separator: " ").count
        }
    }

    @Test func folderThatIsAddedPausedIsLookedAtFirst() async throws {
        try await withTenant { house in
            let folder = Folder(path: house.folder + "/paused")
            try folder.write("a.txt", "a")
            let added = try await house.person.run("agent", "add", folder.path, "--paused")
            #expect(added.status == 0 && added.output.contains("nephos agent plan"), "\(added)")
            let plan = try await house.person.run("agent", "plan")
            #expect(plan.status == 1 && plan.output.contains("send     a.txt"), "\(plan)")
            let status = try await house.person.run("agent", "status", "--json")
            #expect(status.output.contains("paused") || status.output.contains("not running"), "\(status)")
        }
    }

    @Test func checkSaysWhatADiskCanDo() async throws {
        try await withTenant { house in
            let folder = house.folder + "/checked"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            let good = try await house.person.run("agent", "check", folder)
            #expect(good.status == 0 && good.output.contains("rename without replacing"), "\(good)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty)
            let none = try await house.person.run("agent", "check", folder + "/none")
            #expect(none.status == 2, "\(none)")
            let fixed = try await house.person.run("agent", "check", "/proc")
            #expect(fixed.status == 8, "\(fixed)")
        }
    }

    /// A conflict is a line of `agent run`, and a notice on the desktop.
    @Test func conflictIsSaid() async throws {
        try await withTenant { house in
            var devices = [house.person, try await house.anotherDevice("other")]
            let folders = try await folders(house, devices)
            try folders[0].write("a.txt", "first")
            for device in devices { #expect(try await device.run("agent", "run", "--once").status == 0) }
            let programs = house.folder + "/programs"
            let notices = house.folder + "/notices"
            try FileManager.default.createDirectory(atPath: programs, withIntermediateDirectories: true)
            try Data("#!/bin/sh\necho \"$@\" >> '\(notices)'\n".utf8).write(
                to: URL(fileURLWithPath: programs + "/notify-send"))
            #expect(chmod(programs + "/notify-send", 0o755) == 0)
            devices[1].environment["PATH"] = programs + ":/usr/bin:/bin"
            devices[1].environment["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nowhere/at/all"
            try folders[0].write("a.txt", "theirs")
            try folders[1].write("a.txt", "mine")
            #expect(try await devices[0].run("agent", "run", "--once").status == 0)
            let run = try devices[1].start(["agent", "run"])
            try await eventually("it is said") { run.output.contains("conflict  a.txt") }
            try await eventually("on the desktop") {
                (try? String(contentsOfFile: notices, encoding: .utf8))?.contains("a.txt") ?? false
            }
            let status = try await devices[1].run("agent", "status")
            #expect(status.output.contains("in conflict"), "\(status)")
            run.signal(SIGTERM)
            _ = await run.outcome()
        }
    }

    @Test func fileWithoutRoomStaysAndIsBlocked() async throws {
        try await withHousehold { house in
            try await house.begin()
            for command in [
                ["plan", "save", "tiny", "1MB"], ["plan", "assign", "tiny", "--account", house.accountName],
            ] {
                #expect(try await house.nephos.run(command).status == 0)
            }
            let folder = try await folders(house, [house.person])[0]
            try folder.write("small.txt", "small")
            #expect(try await house.person.run("agent", "run", "--once").status == 0)
            try folder.write("large.bin", String(repeating: "x", count: 100) + UUID().uuidString)
            let bytes = SplitMix64.bytes(3_000_000, seed: .random(in: 0 ... .max))
            try bytes.write(to: URL(fileURLWithPath: folder.path + "/large.bin"))
            _ = try await house.person.run("agent", "run", "--once")
            _ = try await house.person.run("agent", "run", "--once")
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder.path + "/large.bin")).count == 3_000_000)
            let why = try await house.person.run("why")
            #expect(why.status == 6 && why.output.contains("blocked: large.bin"), "\(why)")
            let status = try await house.person.run("status")
            #expect(status.status == 6 && status.output.contains(folder.path), "\(status)")
        }
    }
}
