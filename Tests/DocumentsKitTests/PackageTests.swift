import Foundation
import NephosChunks
import NephosCore
import NephosFiles
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// Folders that change as one.
@Suite struct PackageTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func write(_ data: Data, _ file: String) throws { try data.write(to: URL(fileURLWithPath: file)) }

    /// A folder with all that a package may have in it.
    @discardableResult
    private func makePackage(_ folder: String, _ large: Data) throws -> String {
        let files = FileManager.default
        try files.createDirectory(atPath: folder + "/Contents/empty", withIntermediateDirectories: true)
        try write(large, folder + "/Contents/large")
        try write(Data("hello".utf8), folder + "/Contents/é.txt")
        try write(Data(), folder + "/Contents.txt")
        try write(Data("#!/bin/sh\n".utf8), folder + "/run")
        chmod(folder + "/run", 0o755)
        let times = Array(repeating: timespec(tv_sec: -5, tv_nsec: 7), count: 2)
        utimensat(AT_FDCWD, folder + "/run", times, 0)
        try files.createSymbolicLink(atPath: folder + "/current", withDestinationPath: "Contents/large")
        try files.createSymbolicLink(atPath: folder + "/away", withDestinationPath: "/etc/passwd")
        try files.createDirectory(atPath: folder + "/cache.nosync", withIntermediateDirectories: true)
        try write(Data("local".utf8), folder + "/cache.nosync/x")
        return folder
    }

    /// What a folder has in it: kind, mode, times, bytes.
    private func tree(_ folder: String) throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: folder).filter { !$0.contains(".nosync") }.sorted().map {
            name in
            var status = stat()
            lstat(folder + "/" + name, &status)
            switch status.st_mode & S_IFMT {
            case S_IFLNK:
                return "\(name) -> \(try FileManager.default.destinationOfSymbolicLink(atPath: folder + "/" + name))"
            case S_IFDIR: return name + "/"
            default:
                let data = try Data(contentsOf: URL(fileURLWithPath: folder + "/" + name))
                return
                    "\(name) \(status.st_mode & 0o111) \(status.st_mtim.tv_sec).\(status.st_mtim.tv_nsec) \(data.hashValue)"
            }
        }
    }

    private func names(_ folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
    }

    private func withDevices(
        _ body: (_ one: ContainerCloud.Device, _ two: ContainerCloud.Device, _ folder: String) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let folder = cloud.root + "/local"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try await body(one, two, folder)
        }
    }

    // MARK: There and back

    @Test func aFolderComesBackAsItWas() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a.bundle", bytes(900_000, seed: 1))
            let put = try await one.container.put(package: package, at: "a.bundle")
            #expect(put.kind == .package && put.size > 900_000)
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/a.bundle"])
            try FileManager.default.createDirectory(atPath: folder + "/got", withIntermediateDirectories: true)
            try await two.container.get("a.bundle", to: folder + "/got/b/")
            #expect(try tree(folder + "/got/b") == tree(package) && names(folder + "/got") == ["b"])
            #expect(try !names(folder + "/got/b").contains("cache.nosync"))
            // From here too, without a connection.
            two.setOffline(true)
            try await two.container.get("a.bundle", to: folder + "/got/c")
            #expect(try tree(folder + "/got/c") == tree(package))
            two.setOffline(false)
            // The same bytes are no other version, wherever they come from.
            let again = try await two.container.put(package: folder + "/got/b", at: "a.bundle")
            try await two.settle()
            #expect(again.version == put.version && again.pending == .none)
            #expect(try await two.container.versions.list(of: "a.bundle").count == 1)
        }
    }

    /// One that has no more bytes than go with an item.
    @Test func aSmallPackageGoesWithItsItem() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a", Data("small".utf8))
            try await one.container.put(package: package, at: "a")
            try FileManager.default.createDirectory(atPath: folder + "/none", withIntermediateDirectories: true)
            #expect(try await one.container.put(package: folder + "/none", at: "none").size == 16)
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.get("a", to: folder + "/b")
            #expect(try tree(folder + "/b") == tree(package))
            try await two.container.get("none", to: folder + "/c")
            #expect(try names(folder + "/c") == [])
        }
    }

    @Test func extendedAttributesComeBack() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a", Data("x".utf8))
            let file = open(package + "/run", O_RDONLY | O_CLOEXEC)
            // Some file systems have none.
            try? ExtendedAttributes.set(Array("user.mark".utf8), to: [0, 1, 0xff], of: file)
            close(file)
            guard try !ExtendedAttributes.read(package + "/run").isEmpty else { return }
            try await one.container.put(package: package, at: "a")
            try await one.settle()
            try await two.settle()
            try await two.container.get("a", to: folder + "/b")
            let got = try ExtendedAttributes.read(folder + "/b/run")
            #expect(got.map(\.name) == [Array("user.mark".utf8)] && got.map(\.value) == [[0, 1, 0xff]])
            let member = try #require(try await two.container.packages.members(of: "a").first { $0.path == "run" })
            #expect(member.attributes == [Data("user.mark".utf8): Data([0, 1, 0xff])])
        }
    }

    // MARK: Its members

    @Test func membersAreListedAndReadByThemselves() async throws {
        try await withDevices { one, two, folder in
            let large = bytes(3_000_000, seed: 1)
            let package = try makePackage(folder + "/a", large)
            try await one.container.put(package: package, at: "f/a", makesFolders: true)
            try await one.settle()
            try await two.settle()
            let members = try await two.container.packages.members(of: "f/a")
            #expect(
                members.map(\.path) == [
                    "Contents", "Contents.txt", "Contents/empty", "Contents/large", "Contents/é.txt", "away", "current",
                    "run",
                ])
            #expect(members[5].target == Data("/etc/passwd".utf8) && members[5].kind == .link)
            #expect(members[7].isExecutable && members[7].size == 10 && members[0].kind == .folder)
            let file = try #require(members.first { $0.path == "Contents/large" })
            #expect(
                try await two.container.packages.read(file, of: "f/a", range: 1_000_000..<1_000_100)
                    == large[1_000_000..<1_000_100])
            #expect(
                try await two.container.packages.read(file, of: "f/a", range: 2_999_990..<9_000_000)
                    == large[2_999_990...])
            #expect(try await two.container.packages.read(members[7], of: "f/a") == Data("#!/bin/sh\n".utf8))
            #expect(try await two.container.packages.read(members[1], of: "f/a").isEmpty)
            var read = Data()
            for try await piece in try await two.container.packages.stream(file, of: "f/a") { read += piece }
            #expect(read == large)
            // Nothing else was fetched: not all of it is here.
            #expect(try await two.container.item(at: "f/a")?.download.status == .notDownloaded)
            let found = try #require(
                try await two.container.packages.place(at: "f/a/Contents/é.txt", timeout: .seconds(30)))
            let text = try #require(found.member)
            #expect(try await two.container.packages.read(text, of: found.item.id) == Data("hello".utf8))
            let contents = try #require(
                try await two.container.packages.place(at: "f/a/Contents", timeout: .seconds(30)))
            #expect(
                contents.members.map(\.path) == ["Contents/empty", "Contents/large", "Contents/é.txt"]
                    && contents.member?.kind == .folder)
            let whole = try #require(try await two.container.packages.place(at: "f/a", timeout: .seconds(30)))
            #expect(whole.member == nil && whole.members.count == members.count)
            #expect(try await two.container.packages.place(at: "f", timeout: .seconds(30)) == nil)
            for (path, code, timeout) in [
                ("f/a/none", CloudError.Code.unknownItem, Duration.seconds(30)), ("f/a", .networkUnavailable, nil),
            ] as [(String, CloudError.Code, Duration?)] {
                let error = await #expect(throws: CloudError.self) {
                    try await two.container.packages.place(at: path, timeout: timeout)
                }
                #expect(error?.code == code && error?.details["path"] == "/Documents/\(path)")
            }
            let local = LocalPath(folder + "/member")
            for (member, content) in [(file, large), (members[7], Data("#!/bin/sh\n".utf8))] {
                try await two.container.packages.get(
                    member, of: found.item.id, to: local, followsLinks: false, timeout: .seconds(30))
                #expect(try Data(contentsOf: URL(fileURLWithPath: local.text)) == content)
            }
            let named = folder + "/attributed"
            var attributed = file
            attributed.attributes = [Data("user.colour".utf8): Data("red".utf8)]
            try await two.container.packages.get(
                attributed, of: found.item.id, to: LocalPath(named), followsLinks: false, timeout: .seconds(30))
            let attributes = try ExtendedAttributes.read(named)
            #expect(attributes.map { Data($0.name) } == [Data("user.colour".utf8)])
            #expect(attributes.map { Data($0.value) } == [Data("red".utf8)])
            try await two.container.packages.get(
                members[5], of: found.item.id, to: local, followsLinks: false, timeout: .seconds(30))
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: local.text) == "/etc/passwd")
            for wrong in [members[0], members[6]] {
                await #expect(throws: CloudError.self) { try await two.container.packages.read(wrong, of: "f/a") }
            }
            await #expect(throws: CloudError.self) { try await two.container.packages.members(of: "f") }
        }
    }

    @Test func aChangeOfOneMemberSendsItsChunksAlone() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let package = try makePackage(cloud.root + "/a", bytes(6_000_000, seed: 1))
            try await one.container.put(package: package, at: "a")
            try await one.settle()
            let before = try cloud.chunkCount()
            // Before the large one, and of another length: all that is behind it moves.
            try write(bytes(70_001, seed: 2), package + "/Contents.txt")
            try await one.container.put(package: package, at: "a")
            try await one.settle()
            #expect(before > 15)
            #expect(try (1...4).contains(cloud.chunkCount() - before))
        }
    }

    // MARK: What is refused

    @Test func whatIsWrittenWhileItIsPutIsNotTaken() async throws {
        try await withDevices { one, _, folder in
            let package = try makePackage(folder + "/a", bytes(8_000_000, seed: 1))
            let isOver = Mutex(false)
            let writer = Thread {
                // What was read is not changed by this: only what is in the folder is.
                while !isOver.withLock({ $0 }) {
                    _ = FileManager.default.createFile(atPath: package + "/new", contents: Data())
                    unlink(package + "/new")
                }
            }
            writer.start()
            let error = await #expect(throws: CloudError.self) {
                try await one.container.put(package: package, at: "a")
            }
            isOver.withLock { $0 = true }
            #expect(error?.code == .constraintViolation || error?.code == .unknownItem)
            #expect(try await one.paths().isEmpty)
            // Seen at the first look, it has not even made the folder.
            let content = one.session.home.path + "/content"
            #expect(
                try !FileManager.default.fileExists(atPath: content)
                    || names(content).filter { !$0.hasPrefix(".") }.isEmpty)
        }
    }

    @Test func everyChangeOfAFolderIsSeen() throws {
        let folder = NSTemporaryDirectory() + "nephos-package-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try makePackage(folder, Data("x".utf8))
        func look() throws -> LocalPackage { try LocalPackage(LocalPath(folder), allowsOpenDatabase: false) }
        let changes: [() throws -> Void] = [
            { try write(Data("y".utf8), folder + "/Contents/large") }, { chmod(folder + "/run", 0o644) },
            { unlink(folder + "/away") }, { try write(Data(), folder + "/Contents/empty/new") },
            { rename(folder + "/Contents.txt", folder + "/Contents.text") },
        ]
        for (number, change) in changes.enumerated() {
            let before = try look()
            #expect(try look() == before)
            // Two moments that the file system tells apart.
            usleep(20_000)
            try change()
            #expect(try look() != before, "\(number)")
        }
        let before = try look()
        let index = try #require(before.list.index(of: Array("run".utf8)))
        close(try before.open(index))
        usleep(20_000)
        try write(Data("#!/bin/no\n".utf8), folder + "/run")
        let error = #expect(throws: CloudError.self) { try before.open(index) }
        #expect(error?.code == .constraintViolation)
        mkfifo(folder + "/fifo", 0o600)
        #expect(throws: CloudError.self) { try look() }
    }

    @Test func whatIsInAPackagesWayStays() async throws {
        try await withDevices { one, _, folder in
            try await one.container.put(package: makePackage(folder + "/a", bytes(9000, seed: 1)), at: "a")
            let files = FileManager.default
            try files.createDirectory(atPath: folder + "/there/full/deep", withIntermediateDirectories: true)
            try files.createDirectory(atPath: folder + "/there/empty", withIntermediateDirectories: true)
            try write(Data("mine".utf8), folder + "/there/full/deep/x")
            try write(Data("mine".utf8), folder + "/there/file")
            try files.createSymbolicLink(atPath: folder + "/there/link", withDestinationPath: "full")
            for (name, code) in [
                ("full", CloudError.Code.alreadyExists), ("file", .invalidArguments), ("link", .invalidArguments),
            ] {
                for replaces in [false, true] where !(replaces && name == "full") {
                    let error = await #expect(throws: CloudError.self) {
                        try await one.container.get("a", to: folder + "/there/" + name, replacesFolder: replaces)
                    }
                    #expect(error?.code == code, "\(name)")
                }
            }
            #expect(try names(folder + "/there") == ["empty", "file", "full", "link"])
            #expect(try names(folder + "/there/full") == ["deep"] && names(folder + "/there/empty") == [])
            try await one.container.get("a", to: folder + "/there/empty")
            #expect(try tree(folder + "/there/empty") == tree(folder + "/a"))
            // As a whole, as open to others as what was there; what was there is gone.
            chmod(folder + "/there/full", 0o750)
            try await one.container.get("a", to: folder + "/there/full", replacesFolder: true)
            #expect(try tree(folder + "/there/full") == tree(folder + "/a"))
            var status = stat()
            lstat(folder + "/there/full", &status)
            #expect(status.st_mode == S_IFDIR | 0o750)
            #expect(try names(folder + "/there") == ["empty", "file", "full", "link"])
        }
    }

    @Test func aPackageThatWasGotStaysUnlessItIsReplaced() async throws {
        try await withDevices { one, two, folder in
            let source = try makePackage(folder + "/a", bytes(9000, seed: 1))
            try await one.container.put(package: source, at: "a")
            try await one.settle()
            try await two.settle()
            let got = folder + "/got"
            try await two.container.get("a", to: got)
            let before = try tree(got)
            // What is no part of the package is nowhere else.
            try write(Data("only here".utf8), got + "/notes.nosync")
            try write(Data("newer".utf8), source + "/Contents.txt")
            try await one.container.put(package: source, at: "a")
            try await one.settle()
            try await two.settle()
            let error = await #expect(throws: CloudError.self) { try await two.container.get("a", to: got) }
            #expect(error?.code == .alreadyExists)
            #expect(try tree(got) == before && FileManager.default.fileExists(atPath: got + "/notes.nosync"))
            try await two.container.get("a", to: got, replacesFolder: true)
            #expect(try tree(got) == tree(source))
        }
    }

    @Test func aPackageThatIsNotWrittenToItsEndLeavesNothing() async throws {
        try await withDevices { one, two, folder in
            try await one.container.put(package: makePackage(folder + "/a", bytes(3_000_000, seed: 1)), at: "a")
            try await one.settle()
            try await two.settle()
            let item = try #require(try await two.container.item(at: "a"))
            two.setOffline(true)
            await #expect(throws: CloudError.self) {
                try await two.container.get(item.id, to: folder + "/b", timeout: .seconds(1))
            }
            let members = [
                PackageList.Member(.folder, Array("f".utf8)),
                PackageList.Member(.file, Array("f/x".utf8), length: 1000),
            ]
            let target = try LocalTarget.package(LocalPath(folder + "/c"), replaces: false)
            var part: PartPackage? = try PartPackage(for: target, PackageList(members))
            try bytes(500, seed: 1).withUnsafeBytes { try part?.write($0, at: PackageList(members).byteCount) }
            #expect(try names(folder).count { LocalParts.isPart($0.utf8) } == 1)
            part = nil
            #expect(try names(folder) == ["a"])
        }
    }

    /// Somebody else's program may have made it.
    @Test func aHostilePackageIsRefusedAndLeavesNothing() async throws {
        try await withDevices { one, _, folder in
            let list = try PackageList([
                PackageList.Member(.folder, Array("aa".utf8)), PackageList.Member(.file, Array("aa/x".utf8), length: 2),
            ])
            let good = list.encoded() + [0x68, 0x69]
            let path = good.count - 2 - 4
            func change(_ change: (inout [UInt8]) -> Void) -> Data {
                var bytes = good
                change(&bytes)
                return Data(bytes)
            }
            let hostile: [(Data, CloudError.Code)] = [
                (
                    change {
                        $0[path] = UInt8(ascii: "."); $0[path + 1] = UInt8(ascii: ".")
                    }, .constraintViolation
                ),
                (change { $0[path + 3] = UInt8(ascii: "/") }, .constraintViolation),
                (change { $0[path + 1] = UInt8(ascii: "b") }, .constraintViolation),
                (change { $0[8] = 9 }, .incompatibleVersion),
                (change { $0.append(0) }, .constraintViolation), (Data("hello".utf8), .constraintViolation),
                (Data(), .constraintViolation),
            ]
            for (number, (data, code)) in hostile.enumerated() {
                let id = try await one.container.makePackage("p\(number)", data)
                let error = await #expect(throws: CloudError.self, "\(number)") {
                    try await one.container.get(id, to: folder + "/p")
                }
                #expect(error?.code == code, "\(number)")
                #expect(try names(folder) == [], "\(number)")
            }
            let id = try await one.container.makePackage("good", Data(good))
            try await one.container.get(id, to: folder + "/p")
            #expect(try String(contentsOfFile: folder + "/p/aa/x", encoding: .utf8) == "hi")
        }
    }

    // MARK: As an item

    @Test func aPackageIsInConflictAsAWhole() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a", Data("base".utf8))
            try await one.container.put(package: package, at: "a")
            try await one.settle()
            try await two.settle()
            for (device, name) in [(one, "of one"), (two, "of two")] {
                device.setOffline(true)
                try write(Data(name.utf8), package + "/Contents/" + name)
                try await device.container.put(package: package, at: "a")
                device.setOffline(false)
            }
            for device in [one, two, one] { try await device.settle() }
            let item = try #require(try await two.container.item(at: "a"))
            #expect(item.kind == .package && item.conflictCount == 1)
            let made = try await two.container.conflicts.resolve("a", keepsOthers: true)
            #expect(made.map(\.kind) == [.package, .package])
            // Neither takes the other's place.
            try await two.container.put(Data("file".utf8), at: "file")
            for (at, put) in [("file", true), ("a", false)] {
                let error = await #expect(throws: CloudError.self) {
                    if put {
                        try await two.container.put(package: package, at: at)
                    } else {
                        try await two.container.put(Data(), at: at)
                    }
                }
                #expect(error?.code == .alreadyExists)
            }
            await #expect(throws: CloudError.self) {
                try await two.container.put(Data(), at: "a/x", makesFolders: true)
            }
            #expect(
                try await two.container.items().filter { $0.kind == .package }.count == 2)
        }
    }

    /// Somebody has removed it for good, while another has changed it.
    @Test func whatIsMadeAgainIsWhatItWas() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a", Data("base".utf8))
            try await one.container.put([.package(package, at: "a"), .link(to: "a", at: "link")])
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            // By the time that all of it is sent, the removal has come.
            try write(bytes(2_000_000, seed: 3), package + "/Contents/large")
            two.session.setTransferLimits(TransferLimits(upload: 100_000))
            try await two.container.put([.package(package, at: "a"), .link(to: "elsewhere", at: "link")])
            let batch = try await one.container.trash(["a", "link"])
            try await one.container.trash.remove(batch)
            try await one.settle()
            two.setOffline(false)
            for device in [two, two, one] { try await device.settle() }
            #expect(try await one.container.item(at: "a")?.kind == .package)
            #expect(try await one.container.item(at: "link")?.kind == .link)
            try await one.container.get("a", to: folder + "/b")
            #expect(try tree(folder + "/b") == tree(package))
        }
    }

    /// What is printed to put it again puts it as what it was.
    @Test func whatIsRefusedIsPutAgainAsWhatItWas() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let package = try makePackage(cloud.root + "/a", bytes(300_000, seed: 1))
            try await one.container.put(Data("x".utf8), at: "x")
            try await one.settle()
            try cloud.setPlan(bytes: 100_000)
            let put = try await one.container.put(package: package, at: "a")
            try await one.container.renditions.set(bytes(200_000, seed: 2), named: "it's", of: "x")
            try await one.settle()
            let refused = try await one.container.scope.status().refused
            let lines = refused.compactMap(\.recovery).sorted()
            try #require(lines.count == 2, "\(refused)")
            #expect(zip(lines, ["a", "x"]).allSatisfy { $0.hasSuffix(" /Documents/\($1)") }, "\(lines)")
            try cloud.setPlan(bytes: 10_000_000)
            let file = one.session.home.path + "/content/\(try #require(put.version))"
            let again = try await one.container.put(package: file, at: "again")
            #expect(again.kind == .package && again.size == put.size)
            try await one.settle()
            try await one.container.get("again", to: cloud.root + "/b")
            #expect(try tree(cloud.root + "/b") == tree(package))
            let error = await #expect(throws: CloudError.self) {
                try await one.container.put(package: package + "/run", at: "no")
            }
            #expect(error?.code == .invalidArguments)
        }
    }

    @Test func manyAreGotTogetherAndFoundByTheirType() async throws {
        try await withDevices { one, two, folder in
            let package = try makePackage(folder + "/a", bytes(70_000, seed: 1))
            let ids = try await one.container.put((0..<5).map { DocumentSource.package(package, at: "p\($0)") })
            try await one.container.put(Data(), at: "file")
            try await one.settle()
            try await two.settle()
            try FileManager.default.createDirectory(atPath: folder + "/got", withIntermediateDirectories: true)
            func get(replaces: Bool) async -> [Result<GotDocument, CloudError>?] {
                await two.container.localFiles.exports.getEach(
                    ids.enumerated().map { ($1, LocalPath("\(folder)/got/\($0)")) }, replacesFolders: replaces,
                    timeout: .seconds(30))
            }
            #expect(await get(replaces: false).allSatisfy { (try? $0?.get()) != nil })
            // They are here already, and then changed here.
            #expect(await get(replaces: false).allSatisfy { (try? $0?.get())?.isUpToDate == true })
            for number in 0..<5 {
                try Data("mine".utf8).write(to: URL(fileURLWithPath: "\(folder)/got/\(number)/mine"))
            }
            #expect(await get(replaces: false).allSatisfy { (try? $0?.get()) == nil })
            #expect(await get(replaces: true).allSatisfy { (try? $0?.get()) != nil })
            #expect(try names(folder + "/got") == ["0", "1", "2", "3", "4"])
            #expect(try tree(folder + "/got/4") == tree(package))
            let query = QueryReader(try two.container.query("contentType = 'inode/package' AND kind = 'package'"))
            #expect(await query.wait { $0.isGathered })
            #expect(query.now.items.count == 5)
        }
    }
}

extension ContainerCloud {
    private static let countChunks = SQL("SELECT COUNT(*) FROM content_chunks")

    /// Chunks that the service has.
    fileprivate func chunkCount() throws -> Int {
        try simulation.use { cloud in
            try cloud.storage(of: .documents).write { try $0.first(Self.countChunks, []) { Int($0.integer(0)) } ?? 0 }
        }
    }
}

extension UbiquityContainer {
    /// Makes an item that says that it is a package.
    fileprivate func makePackage(_ name: String, _ data: Data) async throws -> DocumentID {
        try await handle.change { draft in
            let id = draft.makeID()
            var create = WireCreateItem()
            create.kind = .package
            create.parent = DocumentID.documents.wire
            create.name = Data(name.utf8)
            create.placeVersion = draft.makeID().wire
            create.content.version = draft.makeID().wire
            create.content.inline = data
            create.content.length = UInt64(data.count)
            draft.add(WireDocumentChange(id, .create(create)))
            return id
        }
    }
}
