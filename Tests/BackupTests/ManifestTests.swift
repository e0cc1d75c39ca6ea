import Foundation
import NephosCore
import Testing

@testable import NephosBackup

/// What lies in a folder for backups somebody may have changed, with the checksum: it is refused before anything is
/// added up or looked for by it.
@Suite struct ManifestTests {
    private static let whole = Manifest(
        createdAt: Timestamp(milliseconds: 1_767_578_400_000), number: 3, deployment: "d",
        databases: [Manifest.Database(service: "identity", bytes: 100, sha256: "00")],
        segments: [Manifest.Segment(partition: 1, number: 2, bytes: 10, sha256: "00")], masterKeys: [:])

    private func read(_ change: (inout Manifest) -> Void) throws -> Manifest {
        var manifest = Self.whole
        change(&manifest)
        return try Manifest(decoding: manifest.encoded(), of: "manifest.json")
    }

    @Test func whatNoBackupCanHaveMadeIsDamage() throws {
        #expect(try read { _ in }.databaseBytes == 100)
        let impossible: [(inout Manifest) -> Void] = [
            { $0.number = .max }, { $0.number = -1 }, { $0.createdAt = .max }, { $0.databases[0].bytes = -1 },
            { $0.databases[0].bytes = .max }, { $0.segments[0].bytes = .max },
            {
                $0.segments = Array(repeating: $0.segments[0], count: 3).map {
                    var one = $0; one.bytes = 1 << 52; return one
                }
            },
            { $0.databases[0].service = "../../etc/passwd" }, { $0.databases.append($0.databases[0]) },
            { $0.segments[0].partition = -1 }, { $0.segments[0].number = -5 },
            { $0.keys = Manifest.Keys(recoveryKey: "", bytes: .max, sha256: "") },
        ]
        for (index, change) in impossible.enumerated() {
            let error = #expect(throws: CloudError.self, "\(index)") { try read(change) }
            #expect(error?.code == .storageFailure, "\(index)")
        }
    }
}
