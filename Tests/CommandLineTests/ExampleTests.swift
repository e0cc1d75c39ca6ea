import Foundation
import NephosCore
import NephosSimulation
import Testing

/// The programs in `examples/`, each on two devices of a deployment.
@Suite struct ExampleTests {
    private func example(_ name: String, on device: Program) -> Program {
        var program = device
        program.name = name
        return program
    }

    /// Starts a program that runs until ``end(_:)``. Its output is there line by line.
    private func start(_ program: Program, _ arguments: String...) throws -> Program.Running {
        try program.start(arguments, before: ["timeout", "60", "stdbuf", "-oL"])
    }

    private func end(_ running: Program.Running) async {
        running.signal(SIGTERM)
        _ = await running.outcome()
    }

    // MARK: Notes

    @Test func notesAndTheirOrderReachTheOtherDevice() async throws {
        try await withTenant { house in
            let laptop = example("notes", on: house.person)
            var phone = laptop
            phone.environment["NEPHOS_HOME"] = house.folder + "/phone"
            let early = try await phone.run("list")
            #expect(early.status == 1 && early.errors.contains("Sign in"), "\(early)")
            let signIn = try await phone.run("sign-in", house.connection, house.accountName)
            #expect(signIn.output == "This device is signed in.\n", "\(signIn)")

            let follow = try start(phone, "follow")
            try await eventually("it follows") { follow.output == "Notes by title:\n" }
            #expect(try await laptop.run("add", "Zoo", "Lions").output == "Notes by title:\n  Zoo: Lions\n")
            try await eventually("a note comes") { follow.output.contains("  Zoo: Lions\n") }
            try await laptop.run("add", "Shopping", "Milk")
            try await laptop.run("edit", "Shopping", "Milk, bread")
            let byTitle = "Notes by title:\n  Shopping: Milk, bread\n  Zoo: Lions\n"
            try await eventually("a changed note comes") { follow.output.hasSuffix(byTitle) }
            try await laptop.run("order", "newest")
            let byDate = "Notes by newest:\n  Shopping: Milk, bread\n  Zoo: Lions\n"
            try await eventually("a setting comes") { follow.output.hasSuffix(byDate) }
            await end(follow)

            try await laptop.run("edit", "Zoo", "Lions, bears")
            #expect(
                try await phone.run("list").output
                    == "Notes by newest:\n  Zoo: Lions, bears\n  Shopping: Milk, bread\n")
            let unknown = try await phone.run("edit", "Nothing", "x")
            #expect(unknown.status == 1 && unknown.errors.hasPrefix("No note has this title."), "\(unknown)")
            let order = try await phone.run("order", "x")
            #expect(order.status == 1 && order.errors == "An order is `title` or `newest`.\n", "\(order)")
        }
    }

    // MARK: Photos

    @Test func photosReachTheOtherDevice() async throws {
        try await withTenant { house in
            let (camera, album) = (house.folder + "/camera", house.folder + "/album")
            for folder in [camera, album] {
                try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            }
            let laptop = example("photo-drop", on: house.person)
            let phone = example("photo-drop", on: try await house.anotherDevice("phone"))
            let photo = SplitMix64.bytes(3 << 20, seed: .random(in: 0 ... .max))
            try photo.write(to: URL(fileURLWithPath: camera + "/sea.jpg"))

            let watch = try start(laptop, camera)
            let get = try start(phone, "get", album)
            let copy = URL(fileURLWithPath: album + "/sea.jpg")
            try await eventually("a photo comes") { (try? Data(contentsOf: copy)) == photo }
            let small = Data("small".utf8)
            try small.write(to: URL(fileURLWithPath: camera + "/hill.jpg"))
            try await eventually("a new photo comes") { get.output.contains("hill.jpg: downloaded\n") }
            #expect(try Data(contentsOf: URL(fileURLWithPath: album + "/hill.jpg")) == small)
            try await eventually("progress ends") { watch.output.contains("hill.jpg: uploaded\n") }
            #expect(watch.output.contains("sea.jpg: uploaded\n"), "\(watch.output)")
            await end(watch)
            await end(get)

            let missing = try await laptop.run(house.folder + "/missing")
            #expect(missing.status == 1 && !missing.errors.isEmpty, "\(missing)")
        }
    }

    // MARK: Tutorial

    /// Each block of commands on the page with the block of output after it.
    private func steps(of page: String) -> [(commands: String, output: String)] {
        page.matches(of: #/```sh\n([^`]+)```\n\n(?:[^`]+\n\n)?```\n([^`]+)```/#).map { (String($0.1), String($0.2)) }
    }

    @Test func tutorialPrintsTheOutputOnItsPage() async throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let page = try String(contentsOf: root.appendingPathComponent("docs/tutorial-app.md"), encoding: .utf8)
        let steps = steps(of: page)
        try #require(steps.count == 4)
        let setup = try #require(page.firstMatch(of: #/```sh\n(export [^`]+phone\(\)[^`]+)```/#)?.1)
        #expect(page.contains("```sh\nphone follow\n```"))
        try await withHousehold { house in
            try await house.start()
            // The account that ops/run makes.
            let password = house.deployment + "/demo.password"
            try Data("correct horse battery".utf8).write(to: URL(fileURLWithPath: password))
            let made = try await house.nephos.run("account", "create", "demo", "--password-file", password)
            try #require(made.status == 0, "\(made.errors)")
            // The reader's package, with the program that is built of the same source.
            let package = house.folder + "/notes"
            try FileManager.default.createDirectory(
                atPath: package + "/.build/debug", withIntermediateDirectories: true)
            try FileManager.default.createSymbolicLink(
                atPath: package + "/.build/debug/notes", withDestinationPath: Program.folder + "/tutorial")
            var shell = house.nephos
            shell.environment["HOME"] = house.folder
            shell.environment["PATH"] = Program.folder + ":/usr/bin:/bin"
            let begin = "cd \(package); exec 2>&1\n\(setup)"

            #expect(try await shell.run(shell: begin + steps[0].commands).output == steps[0].output)
            let follow = try shell.start(
                [], before: ["timeout", "60", "stdbuf", "-oL", "bash", "-c", begin + "phone follow"])
            try await eventually("it follows") { follow.output == "Waiting for notes\n" }
            #expect(try await shell.run(shell: begin + steps[1].commands).output == "")
            try await eventually("the note comes") { follow.output == steps[1].output }
            await end(follow)
            for step in steps[2...] {
                #expect(try await shell.run(shell: begin + step.commands).output == step.output)
            }
        }
    }
}
