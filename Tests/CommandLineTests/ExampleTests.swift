import Foundation
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
            let signIn = try await phone.run("sign-in", try await house.connection, house.accountName)
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
            let photo = Data((0..<3 << 20).map { _ in UInt8.random(in: 0...255) })
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
}
