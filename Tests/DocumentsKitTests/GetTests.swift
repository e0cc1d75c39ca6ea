import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What becomes of local files where something is got.
@Suite struct GetTests {
    private func status(_ path: String) -> stat {
        var status = stat()
        lstat(path, &status)
        return status
    }

    private func text(_ path: String) throws -> String {
        String(decoding: try Data(contentsOf: URL(fileURLWithPath: path)), as: UTF8.self)
    }

    /// With a device that has the file `x`, "new", and the link `link` to `x`.
    private func withDevice(_ body: (UbiquityContainer, _ folder: String) async throws -> Void) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put([.data(Data("new".utf8), at: "x"), .link(to: "x", at: "link")])
            let folder = cloud.root + "/local"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try await body(one.container, folder)
        }
    }

    @Test func aFileThatIsReplacedStaysAsOpenToOthersAsItWas() async throws {
        try await withDevice { container, folder in
            for mode in [mode_t(0o600), 0o640, 0o755] {
                let file = folder + "/file"
                try Data("old".utf8).write(to: URL(fileURLWithPath: file))
                chmod(file, mode)
                if geteuid() == 0 { chown(file, 12, 34) }
                let owner = status(file)
                try await container.get("x", to: file, overwrites: true)
                let new = status(file)
                #expect(try text(file) == "new" && new.st_mode == S_IFREG | mode)
                #expect(new.st_uid == owner.st_uid && new.st_gid == owner.st_gid)
            }
            // What it gave whoever ran it, other bytes do not give.
            chmod(folder + "/file", 0o4755)
            try await container.get("x", to: folder + "/file", overwrites: true)
            #expect(status(folder + "/file").st_mode == S_IFREG | 0o755)
        }
    }

    @Test func whatIsNoFileIsNeverReplaced() async throws {
        try await withDevice { container, folder in
            try FileManager.default.createDirectory(atPath: folder + "/folder", withIntermediateDirectories: true)
            mkfifo(folder + "/fifo", 0o600)
            try FileManager.default.createSymbolicLink(atPath: folder + "/null", withDestinationPath: "/dev/null")
            try FileManager.default.createSymbolicLink(atPath: folder + "/to-fifo", withDestinationPath: "fifo")
            try FileManager.default.createSymbolicLink(atPath: folder + "/round", withDestinationPath: "round")
            for name in ["folder", "fifo", "null", "to-fifo", "round"] {
                let before = status(folder + "/" + name)
                let error = await #expect(throws: CloudError.self) {
                    try await container.get("x", to: folder + "/" + name)
                }
                #expect(error?.code == (name == "round" ? .storageFailure : .invalidArguments), "\(name)")
                let after = status(folder + "/" + name)
                #expect(before.st_ino == after.st_ino && before.st_mode == after.st_mode, "\(name)")
            }
            for name in ["folder", "fifo"] {
                let error = await #expect(throws: CloudError.self) {
                    try await container.get("link", to: folder + "/" + name)
                }
                #expect(error?.code == .invalidArguments && status(folder + "/" + name).st_mode & S_IFMT != S_IFLNK)
            }
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
                    == ["fifo", "folder", "null", "round", "to-fifo"])
        }
    }

    @Test func whatALinkLeadsToIsReplacedAndNotTheLink() async throws {
        try await withDevice { container, folder in
            try FileManager.default.createDirectory(atPath: folder + "/sub", withIntermediateDirectories: true)
            try Data("old".utf8).write(to: URL(fileURLWithPath: folder + "/sub/file"))
            chmod(folder + "/sub/file", 0o600)
            for (link, target) in [("one", "sub/two"), ("sub/two", "file"), ("none", "made")] {
                try FileManager.default.createSymbolicLink(
                    atPath: folder + "/" + link, withDestinationPath: target)
            }
            try await container.get("x", to: folder + "/one", overwrites: true)
            try await container.get("x", to: folder + "/none")
            #expect(try text(folder + "/sub/file") == "new" && text(folder + "/made") == "new")
            #expect(status(folder + "/sub/file").st_mode == S_IFREG | 0o600)
            for link in ["one", "sub/two", "none"] {
                #expect(status(folder + "/" + link).st_mode & S_IFMT == S_IFLNK, "\(link)")
            }
            // A link that is got takes the place of one.
            try await container.get("link", to: folder + "/one", overwrites: true)
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: folder + "/one") == "x")
        }
    }

    @Test func aNameMayBeAsLongAsNamesAre() async throws {
        try await withDevice { container, folder in
            for count in [217, 218, 255] {
                let name = String(repeating: "n", count: count)
                try await container.put(Data("long".utf8), at: name)
                try await container.get(name, to: folder + "/" + name)
                #expect(try text(folder + "/" + name) == "long")
                try await container.get("link", to: folder + "/" + name)
                #expect(status(folder + "/" + name).st_mode & S_IFMT == S_IFLNK)
            }
        }
    }

    @Test(arguments: [false, true]) func whatIsNotWrittenToItsEndLeavesNothing(isNamed: Bool) async throws {
        try await withDevice { _, folder in
            let target = try LocalTarget.file(LocalPath(folder + "/x"), followsLinks: true)
            func names() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: folder) }
            var part: PartFile? = try PartFile(for: target, isExecutable: false, isNamed: isNamed)
            // On this machine's disk a part needs no name.
            let found = try names()
            #expect(found.count == (isNamed ? 1 : 0) && found.allSatisfy { LocalParts.isPart($0.utf8) })
            part = nil
            #expect(try names() == [])
            part = try PartFile(for: target, isExecutable: false, isNamed: isNamed)
            try part?.flush()
            try part?.takePlace()
            part = nil
            #expect(try names() == ["x"])
        }
    }

    @Test func onlyPartsAreCalledAsPartsAre() {
        #expect(LocalParts.isPart(".nephos-0123456789abcdef.part".utf8))
        for name in [
            ".nephos-.part", ".nephos-0123456789abcde.part", ".nephos-0123456789abcdeF.part",
            "nephos-0123456789abcdef.part", ".nephos-0123456789abcdef.par",
        ] {
            #expect(!LocalParts.isPart(name.utf8), "\(name)")
        }
    }

    @Test func ofSeveralThatAreGotEachComesOrStaysAsItWas() async throws {
        try await withDevice { container, folder in
            let many = (0..<40).map { number in
                DocumentSource.data(Data(repeating: UInt8(number), count: number * 1000), at: "many/\(number)")
            }
            try await container.put(many, makesFolders: true)
            var gets: [(item: DocumentID, place: LocalPath)] = []
            for number in 0..<40 {
                let item = try #require(try await container.item(at: "many/\(number)"))
                gets.append((item.id, LocalPath("\(folder)/\(number)")))
            }
            try Data("old".utf8).write(to: URL(fileURLWithPath: folder + "/3"))
            try FileManager.default.createSymbolicLink(atPath: folder + "/4", withDestinationPath: "3")
            mkfifo(folder + "/5", 0o600)
            gets.append((DocumentID.documents, LocalPath(folder + "/folder")))
            let link = try #require(try await container.item(at: "link"))
            gets.append((link.id, LocalPath(folder + "/link")))
            let results = await container.localFiles.exports.getEach(gets, replacing: .all, timeout: .seconds(30))
            for (number, result) in results.enumerated() {
                let isGot = ![4, 5, 40].contains(number)
                #expect((try? result?.get()) != nil || !isGot, "\(number)")
                guard isGot, number < 40 else { continue }
                let data = try Data(contentsOf: URL(fileURLWithPath: "\(folder)/\(number)"))
                #expect(data == Data(repeating: UInt8(number), count: number * 1000), "\(number)")
            }
            #expect(results.count { (try? $0?.get()) != nil } == 39)
            #expect(status(folder + "/4").st_mode & S_IFMT == S_IFLNK)
            #expect(status(folder + "/5").st_mode & S_IFMT == S_IFIFO)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 41)
            // After an error that is about all of them none is begun.
            let none = await container.localFiles.exports.getEach(
                (0..<40).map { _ in (DocumentID.documents, LocalPath(folder + "/no")) }, timeout: .seconds(30)
            ) { _ in true }
            #expect(none.count { $0 != nil } < 20)
        }
    }

    @Test func theLinesThatDecideAConflictLeadToANameThatIsNoText() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let path = DocumentPath(names: [DocumentPath.documents, Data([0xff, 0x61])])
            func put(_ device: ContainerCloud.Device, _ text: String) async throws {
                _ = try await device.container.put([DocumentSource(path, .data(Data(text.utf8)))])
            }
            try await one.settle()
            try await put(one, "base")
            try await one.settle()
            try await two.settle()
            for (device, text) in [(one, "of one"), (two, "of two")] {
                device.setOffline(true)
                try await put(device, text)
                device.setOffline(false)
            }
            for device in [one, two, one] { try await device.settle() }
            let item = try #require(try await one.container.items(in: "Documents").first)
            let conflict = try #require(try await one.container.scope.conflicts().first)
            #expect(conflict.resolutions.count == 3)
            for line in conflict.resolutions + [conflict.recovery ?? ""] {
                #expect(line.hasSuffix(" id:\(item.id)"), "\(line)")
            }
            try await one.container.conflicts.resolve(item.id, keeping: item.version)
            #expect(try await one.container.item(at: item.id)?.conflictCount == 0)
            let copy = try await one.container.copy(item.id, to: "copy")
            #expect(try await one.container.read(copy.item.id) == one.container.read(item.id))
        }
    }
}
