import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What somebody holds still stays as it is on both sides, and holds up nothing else.
@Suite struct PauseTests {
    /// Nobody could resume it there.
    @Test func whatIsHeldStillAndWasChangedIsNotDeletedBeforeItIsResumed() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for name in ["f/x", "f/y"] {
                try await one.container.put(Data("1".utf8), at: name, makesFolders: true)
            }
            try await one.settle()
            for name in ["f/x", "f/y"] { try await one.container.pauses.pause(name) }
            try await one.container.put(Data("22".utf8), at: "f/x")
            for name in ["f/x", "f"] {
                let error = await #expect(throws: CloudError.self) { try await one.container.trash([name]) }
                #expect(error?.code == .constraintViolation && error?.details["path"] == "/Documents/f/x")
            }
            // Of that one nothing waits.
            try await one.container.trash(["f/y"])
            try await one.container.pauses.resume("f/x", with: .preserveLocalChanges)
            try await one.settle()
            try await one.container.trash(["f"])
            try await one.settle()
            #expect(try await one.container.status().refused.isEmpty)
            #expect(try await one.container.items(in: "/Documents").isEmpty)
        }
    }

    /// Also in a folder, and by the path that it had.
    @Test func whatIsPausedAndSomebodyElseHasDeletedCanBeResumed() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for path in ["f/x", "y"] { try await one.container.put(Data("1".utf8), at: path, makesFolders: true) }
            try await one.settle()
            try await two.settle()
            for path in ["f/x", "y"] {
                try await one.container.pauses.pause(path)
                try await one.container.put(Data("2".utf8), at: path)
            }
            try await two.container.trash(["f", "y"])
            try await two.settle()
            try await one.settle()
            #expect(try await one.paths().isEmpty)
            let paused = try await one.container.pauses.list()
            #expect(paused.map(\.path) == ["/Documents/f/x", "/Documents/y"])
            try await one.container.pauses.resume(paused[0].id)
            try await one.container.pauses.resume("y")
            try await one.settle()
            try await two.settle()
            #expect(try await one.container.status().paused.isEmpty)
            // What somebody has written is not lost by that.
            #expect(try await two.text("f/x") == "2")
            #expect(try await two.text("y") == "2")
            let error = await #expect(throws: CloudError.self) { try await one.container.pauses.resume("z") }
            #expect(error?.code == .unknownItem)
        }
    }

    /// It would wait behind what is kept here, and nobody could resume that.
    @Test func whatIsHeldStillAndSomebodyElseHasDeletedIsNotRemovedForGood() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            try await one.container.pauses.pause("x")
            try await one.container.put(Data("2".utf8), at: "x")
            let batch = try await two.container.trash(["x"])
            try await two.settle()
            try await one.settle()
            let error = await #expect(throws: CloudError.self) { try await one.container.trash.remove(batch) }
            #expect(error?.code == .constraintViolation && error?.details["path"] == "/Documents/x")
            #expect(try await one.container.pauses.deletedItem(at: "x")?.isPaused == true)
            #expect(try await one.container.pauses.deletedItem(at: "y") == nil)
            try await one.container.pauses.resume("x")
            try await one.settle()
            #expect(try await one.text("x") == "2")
        }
    }

    @Test func whatIsHeldStillIsNotAskedFor() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            for path in ["f/x", "f/y"] {
                try await one.container.put(bytes(9000, seed: 1), at: path, makesFolders: true)
            }
            try await one.settle()
            try await two.settle()
            try await two.container.pauses.pause("f/x")
            let error = await #expect(throws: CloudError.self) { try await two.container.downloads.start("f/x") }
            #expect(error?.code == .constraintViolation && error?.details["path"] == "/Documents/f/x")
            #expect(try await two.container.downloads.start("f") == 1)
            #expect(try await two.container.item(at: "f/x")?.download.isRequested == false)
        }
    }

    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    private func code(_ body: () async throws -> Void) async -> CloudError.Code? {
        do { try await body() } catch { return CloudError(wrapping: error).code }
        return nil
    }

    @Test func whatIsPausedWaitsAndEverythingElseGoesOn() async throws {
        try await withContainers { cloud in
            var one = try await cloud.open()
            let two = try await cloud.open()
            try await one.settle()
            for name in ["x", "y"] { try await one.container.put(Data("1".utf8), at: name) }
            try await one.settle()
            try await one.container.pauses.pause("x")
            try await one.container.pauses.pause("x")
            try await one.container.put([.data(Data("2".utf8), at: "y"), .data(Data("2".utf8), at: "x")])
            try await one.container.put(bytes(200_000, seed: 1), at: "x")
            try await one.container.put(Data("2".utf8), at: "new")
            // A move of the item itself, and of what it lies in, goes on.
            try await one.container.move("x", to: "z")
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/new", "/Documents/y", "/Documents/z"])
            #expect(try await two.text("z") == "1")
            #expect(try await two.text("y") == "2")
            #expect(try await two.text("new") == "2")
            #expect(try await one.container.read("z") == bytes(200_000, seed: 1))
            let entry = try #require(try await one.container.item(at: "z"))
            #expect(entry.isPaused && entry.state == .paused && entry.pending != .none)
            let status = try await one.container.status()
            #expect(status.paused.map(\.path) == ["/Documents/z"])
            #expect(status.scope.pending.map(\.reason) == Array(repeating: Preparation.paused.rawValue, count: 2))
            #expect(status.waiting.map(\.blocker) == [.thisDevice])
            one.session.close()
            one = try await cloud.open(one.session.home.path)
            try await one.settle()
            cloud.simulation.pass(.seconds(120))
            #expect(try await one.container.pauses.list().map(\.path) == ["/Documents/z"])
            try await two.settle()
            #expect(try await two.text("z") == "1")
            try await one.container.pauses.resume("z")
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.read("z") == bytes(200_000, seed: 1))
            #expect(try await two.container.conflicts.versions(of: "z").count == 1)
            #expect(try await one.container.status().paused.isEmpty)
        }
    }

    @Test func ofWhatWasPutTogetherOnlyThePausedStaysBehind() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            let contents = (0..<3).map { bytes(150_000, seed: UInt64($0)) }
            try await one.container.put(
                contents.enumerated().map { .data($1, at: "f/\($0)") } + [.data(Data("s".utf8), at: "f/short")],
                makesFolders: true)
            try await one.container.pauses.pause("f/1")
            try await one.container.copy("f/1", to: "copy")
            try await one.container.move("f/1", to: "f/renamed")
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            #expect(
                try await two.paths() == ["/Documents/f", "/Documents/f/0", "/Documents/f/2", "/Documents/f/short"])
            #expect(try await two.container.read("f/2") == contents[2])
            #expect(try await one.container.scope.status().refused.isEmpty)
            // The folder is not deleted from under it, as long as what is in it is nowhere else.
            await #expect(throws: CloudError.self) { try await one.container.trash(["f"]) }
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths().contains("/Documents/f/0"))
            try await one.container.pauses.resume("f/renamed")
            try await one.settle()
            try await two.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await two.container.read("f/renamed") == contents[1])
            #expect(try await two.container.read("copy") == contents[1])
        }
    }

    @Test func twoThatWroteMeanwhileAreAConflictOrStayApartAsWasAsked() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for name in ["kept", "failed", "dropped"] { try await one.container.put(Data("0".utf8), at: name) }
            try await one.settle()
            try await two.settle()
            for name in ["kept", "failed", "dropped"] {
                try await one.container.pauses.pause(name)
                try await one.container.put(Data("mine".utf8), at: name)
                try await two.container.put(Data("theirs".utf8), at: name)
            }
            try await two.settle()
            try await one.settle()

            try await one.container.pauses.resume("kept")
            try await one.settle()
            #expect(try await one.container.conflicts.versions(of: "kept").count == 2)

            #expect(
                await code { try await one.container.pauses.resume("failed", with: .afterUploadWithFailOnConflict) }
                    == .constraintViolation)
            let entry = try #require(try await one.container.item(at: "failed"))
            #expect(entry.isPaused && entry.pauseProblem != nil && entry.conflictCount == 0)
            #expect(try await one.text("failed") == "mine")
            #expect(try await one.container.downloads.fetchLatest("failed").size == 6)
            try await two.settle()
            #expect(try await two.text("failed") == "theirs")

            try await one.container.pauses.resume("dropped", with: .dropLocalChanges)
            try await one.settle()
            #expect(try await one.text("dropped") == "theirs")
            let refused = try #require(try await one.container.scope.status().refused.first)
            #expect(refused.key == "/Documents/dropped" && refused.error.code == .operationCancelled)
            let file = try #require(refused.keptFile)
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "mine")

            try await one.container.pauses.resume("failed")
            try await one.settle()
            #expect(try await one.container.conflicts.versions(of: "failed").count == 2)
            #expect(try await one.container.pauses.list().isEmpty)
        }
    }

    @Test func aVersionIsSentOnlyIfNobodyElseWas() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            try await one.container.pauses.pause("x")
            try await one.container.put(Data("1".utf8), at: "x")
            let version = try await one.container.pauses.uploadLocalVersion("x", failsOnConflict: true)
            #expect(version.standing == .current && version.size == 1)
            #expect(try await one.container.item(at: "x")?.isPaused == true)
            try await two.settle()
            #expect(try await two.text("x") == "1")
            try await one.container.put(Data("333".utf8), at: "x")
            try await two.container.put(Data("22".utf8), at: "x")
            try await two.settle()
            #expect(
                await code { try await one.container.pauses.uploadLocalVersion("x", failsOnConflict: true) }
                    == .constraintViolation)
            // Not paused, what is refused is listed.
            try await one.container.put(Data("y".utf8), at: "y")
            try await one.settle()
            try await two.settle()
            one.setOffline(true)
            try await one.container.put(bytes(100_000, seed: 1), at: "y")
            try await two.container.put(Data("theirs".utf8), at: "y")
            try await two.settle()
            let late = await code {
                try await one.container.pauses.uploadLocalVersion("y", failsOnConflict: true, timeout: .zero)
            }
            #expect(late == .deadlineExceeded)
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.scope.status().refused.map(\.key) == ["/Documents/y"])
            // Where nothing was changed there is nothing to be sent.
            #expect(try await two.container.pauses.uploadLocalVersion("y").size == 6)
        }
    }

    @Test func whatCannotBePausedSaysWhy() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "f/x", makesFolders: true)
            try await one.settle()
            #expect(await code { try await one.container.pauses.pause("f") } == .invalidArguments)
            #expect(await code { try await one.container.pauses.pause("no") } == .unknownItem)
            cloud.simulation.use { $0.setCommitsFail(of: .documents, true) }
            try await one.container.put(Data("1".utf8), at: "f/x")
            cloud.simulation.pass(.seconds(2))
            #expect(await code { try await one.container.pauses.pause("f/x") } == .serviceBusy)
            cloud.simulation.use { $0.setCommitsFail(of: .documents, false) }
            try await one.settle()
            try await one.container.pauses.pause("f/x")
        }
    }

    @Test func whatOthersChangeIsNotFetchedMeanwhile() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            try await one.container.downloads.pin("x")
            try await one.settle()
            try await two.settle()
            try await one.container.pauses.pause("x")
            try await two.container.put(bytes(100_000, seed: 2), at: "x")
            try await two.settle()
            try await one.settle()
            cloud.simulation.pass(.seconds(60))
            #expect(try await one.container.item(at: "x")?.download.status == .downloaded)
            try await one.container.pauses.resume("x")
            for _ in 0..<100 where try await one.container.item(at: "x")?.download.status != .current {
                cloud.simulation.pass(.seconds(1))
            }
            #expect(try await one.container.item(at: "x")?.download.status == .current)
        }
    }
}
