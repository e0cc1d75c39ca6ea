import Foundation
import GRDB
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What would be torn is not put, and what is to stay on its device does.
@Suite struct LocalFileTests {
    private func withFolder(_ body: (String) async throws -> Void) async throws {
        let folder = NSTemporaryDirectory() + "nephos-local-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(folder)
    }

    @Test func aDatabaseInUseIsRefusedWithAllThatIsBesideIt() async throws {
        try await withFolder { folder in
            try await withContainers { cloud in
                let one = try await cloud.open()
                try await one.settle()
                let file = folder + "/data.db"
                let database = try DatabaseQueue(path: file)
                try await database.writeWithoutTransaction { database in
                    try database.execute(sql: "PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
                }
                try FileManager.default.createSymbolicLink(atPath: folder + "/link", withDestinationPath: file)
                for name in ["data.db", "data.db-wal", "data.db-shm", "link"] {
                    let error = await #expect(throws: CloudError.self) {
                        try await one.container.put(file: "\(folder)/\(name)", at: name)
                    }
                    #expect(
                        error?.code == .constraintViolation && error?.message.contains(".backup") == true, "\(name)")
                    #expect(error?.details["command"] == "sqlite3 \(file) '.backup COPY'")
                }
                #expect(try await one.paths().isEmpty)
                try await one.container.put([.file(file, at: "anyway", allowsOpenDatabase: true)])
                // Once it is closed it is a file like any other; so is what was copied as it is to be.
                try await database.vacuum(into: folder + "/copy.db")
                try database.close()
                try await one.container.put(file: file, at: "closed")
                try await one.container.put(file: folder + "/copy.db", at: "copy")
                #expect(try await one.paths() == ["/Documents/anyway", "/Documents/closed", "/Documents/copy"])
                // One that was cut off has its journal still; a log is known without its database.
                try Data().write(to: URL(fileURLWithPath: file + "-journal"))
                let log = Data([0x37, 0x7f, 0x06, 0x82]) + Data(count: 28)
                try log.write(to: URL(fileURLWithPath: folder + "/lone-wal"))
                for name in ["data.db", "data.db-journal", "lone-wal"] {
                    await #expect(throws: CloudError.self, "\(name)") {
                        try await one.container.put(file: "\(folder)/\(name)", at: name)
                    }
                }
                // A name alone says nothing.
                try Data("dear journal".utf8).write(to: URL(fileURLWithPath: folder + "/my-journal"))
                try Data("x".utf8).write(to: URL(fileURLWithPath: folder + "/my"))
                try await one.container.put(file: folder + "/my-journal", at: "my-journal")
                try await one.container.put(file: folder + "/my", at: "my")
            }
        }
    }

    @Test func whatIsToStayOnItsDeviceIsNotPutThere() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let container = one.container
            try await container.put(Data("1".utf8), at: "x")
            try await container.makeFolder(at: "f")
            await #expect(throws: CloudError.self) { try await container.put(Data(), at: "a.nosync") }
            await #expect(throws: CloudError.self) {
                try await container.put(Data(), at: "build.nosync/a", makesFolders: true)
            }
            await #expect(throws: CloudError.self) { try await container.makeFolder(at: "f/b.nosync") }
            await #expect(throws: CloudError.self) { try await container.move("x", to: "x.nosync") }
            await #expect(throws: CloudError.self) { try await container.copy("x", to: "f/x.nosync") }
            try await container.put(Data("2".utf8), at: "nosync")
            #expect(try await one.paths() == ["/Documents/f", "/Documents/nosync", "/Documents/x"])
        }
    }
}
