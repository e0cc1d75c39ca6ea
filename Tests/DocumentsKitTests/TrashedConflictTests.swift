import Foundation
import NephosCore
import Testing

@testable import NephosKit

/// Conflicts of files in the trash.
@Suite struct TrashedConflictTests {
    @Test("A file's conflict is not listed while the file is in the trash, and is again afterwards")
    func conflictComesBackWithItsFile() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.container.put(Data("ours".utf8), at: "x")
            try await one.settle()
            try await one.container.conflict("x", Data("theirs".utf8))
            try await one.settle()
            let scope = one.container.scope
            func listed() async throws -> [ItemName] {
                let names = try await scope.conflicts().map(\.name)
                #expect(try await scope.conflictCount() == names.count)
                return names
            }
            #expect(try await listed() == ["/Documents/x"])
            try await one.container.trash(["x"])
            try await one.settle()
            #expect(try await listed() == [])
            try await one.container.trash.restore()
            try await one.settle()
            #expect(try await listed() == ["/Documents/x"])
        }
    }
}
