import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A device's home on a disk that gives trouble: it says what is wrong, and what can be read is read.
@Suite(.serialized) struct HomeDiskTests {
    private let app = AppID("app.one")

    private func write(_ value: PropertyValue, in local: LocalStore) throws {
        let now = Timestamp(milliseconds: 1_800_000_000_000)
        try local.accept([LocalWrite(key: "k", value: value)], app: app, id: OperationID(at: now), writer: 1, now: now)
    }

    private func withFolder(_ body: (String) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "nephos-home-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder)
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."), arguments: [false, true])
    func aHomeOnAFullDiskIsReadAndSaysThatItIsFull(hasLog: Bool) throws {
        let disk = try SmallDisk(megabytes: 4)
        defer { disk.remove() }
        let path = disk.folder + "/device.sqlite"
        try prepare(path, hasLog: hasLog)
        try disk.fill()
        let local = try LocalStore(path: path)
        #expect(try local.read("k", app: app) == .value("kept"))
        let refused = #expect(throws: CloudError.self) {
            try write(.string(String(repeating: "x", count: 500_000)), in: local)
        }
        #expect(refused?.code == .storageFailure && refused?.message == LocalFailure.full)
        #expect(try local.read("k", app: app) == .value("kept"))
        try disk.empty()
        let again = try LocalStore(path: path)
        try write("more", in: again)
        #expect(try again.read("k", app: app) == .value("more"))
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aHomeThatIsMountedReadOnlyIsReadAndSaysSo() throws {
        let disk = try SmallDisk(megabytes: 4)
        defer { disk.remove() }
        let path = disk.folder + "/device.sqlite"
        try prepare(path, hasLog: false)
        try disk.setReadOnly()
        let local = try LocalStore(path: path)
        #expect(try local.read("k", app: app) == .value("kept"))
        let refused = #expect(throws: CloudError.self) { try write("new", in: local) }
        #expect(refused?.code == .storageFailure && refused?.message == LocalFailure.readOnly)
        // Nothing is begun with the server that could not be kept here.
        #expect(throws: CloudError.self) { try local.requireWritable() }
    }

    /// - Parameter hasLog: The process ends in the middle, so that what it wrote is in the log alone.
    private func prepare(_ path: String, hasLog: Bool) throws {
        let first = path + ".first"
        do {
            let local = try LocalStore(path: first)
            try write("kept", in: local)
            for end in hasLog ? ["", "-wal"] : [] {
                try FileManager.default.copyItem(atPath: first + end, toPath: path + end)
            }
        }
        if !hasLog { try FileManager.default.moveItem(atPath: first, toPath: path) }
        for end in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: first + end) }
    }

    @Test func aDamagedDatabaseSaysWhatToDo() throws {
        try withFolder { folder in
            let path = folder + "/device.sqlite"
            try Data(repeating: 7, count: 8192).write(to: URL(fileURLWithPath: path))
            let refused = #expect(throws: CloudError.self) { try LocalStore(path: path) }
            #expect(refused?.code == .storageFailure && refused?.message == LocalFailure.damaged)
            #expect(refused?.details["path"] == path)
        }
    }

    @Test func aHomesDatabaseIsItsOwnersAlone() throws {
        try withFolder { folder in
            let path = folder + "/device.sqlite"
            // As it was made by earlier releases.
            #expect(FileManager.default.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o644]))
            let local = try LocalStore(path: path)
            try write("kept", in: local)
            for end in ["", "-wal", "-shm"] {
                let mode = try FileManager.default.attributesOfItem(atPath: path + end)[.posixPermissions] as? Int
                #expect(mode == 0o600)
            }
        }
    }

    @Test func aFileInTheHomesPlaceIsCalledOne() async throws {
        let path = NSTemporaryDirectory() + "nephos-home-\(UUID().uuidString)"
        #expect(FileManager.default.createFile(atPath: path, contents: nil))
        defer { try? FileManager.default.removeItem(atPath: path) }
        let refused = await #expect(throws: CloudError.self) {
            try await Session.open(home: URL(fileURLWithPath: path))
        }
        #expect(refused?.code == .configurationInvalid && refused?.details["home"] == path)
    }
}
