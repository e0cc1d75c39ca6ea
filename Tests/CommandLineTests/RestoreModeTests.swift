import Foundation
import Testing

/// A restore into folders in which the services would not start.
@Suite(.serialized) struct RestoreModeTests {
    @Test func aRestoreRefusesFoldersThatOthersMayUse() async throws {
        try await withHousehold { house in
            try await house.begin()
            let backups = house.folder + "/backups"
            #expect(try await house.nephos.run("recovery-key", "new", "--json").status == 0)
            #expect(try await house.nephos.run("backup", backups).status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            let restore = ["restore", backups, "--in-place", "--keep-keys"]
            let data = house.deployment + "/data/documents"
            for (folder, mode, right) in [(data, mode_t(0o755), mode_t(0o700)), (house.deployment, 0o777, 0o700)] {
                try #require(chmod(folder, mode) == 0)
                for dry in [["--dry-run"], []] {
                    let refused = try await house.nephos.run(restore + dry)
                    #expect(refused.status == 8 && refused.errors.contains("Run: chmod"), "\(refused)")
                    #expect(refused.errors.contains(folder), "\(refused)")
                }
                try #require(chmod(folder, right) == 0)
            }
            let restored = try await house.nephos.run(restore)
            #expect(restored.status == 0, "\(restored)")
        }
    }
}
