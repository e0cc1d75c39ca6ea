import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// Of the public database each record's assets are by themselves, as may be those who read it.
extension AssetTests {
    @Test func assetsOfThePublicDatabaseAreTheirRecords() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            _ = try cloud.simulation.use { try $0.createAccount("bert") }
            let two = try await cloud.open(account: "bert")
            let (here, there) = (try await cloud.publicDatabase(of: one), try await cloud.publicDatabase(of: two))
            let contents = ["a": SplitMix64.bytes(300_000, seed: 1), "b": SplitMix64.bytes(400_000, seed: 2)]
            var records: [Record] = []
            for (name, content) in contents {
                var record = Record(name, [:])
                record["photo"] = try RecordAsset(content)
                records.append(record)
            }
            // In one request.
            try await here.modify(saving: records, deleting: [])
            try await here.waitUntilSent(timeout: .seconds(60))
            #expect(try await here.conflicts.rejected().map(\.error).isEmpty)
            for (name, content) in contents { #expect(try await data(name, there) == content) }
            // By one who may read it and not change it.
            var record = try #require(try await there.record(RecordID("a")))
            record["photo"] = try RecordAsset(SplitMix64.bytes(100_000, seed: 3))
            try await there.save(record)
            try await there.waitUntilSent(timeout: .seconds(60))
            #expect(try await there.conflicts.rejected().map(\.error.code) == [.permissionFailure])
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// Of records that are changed together the first may be somebody else's: what is brought for it is refused alone.
    @Test(arguments: ["a", "z"]) func whatIsBroughtForAnothersRecordHoldsUpNoOther(theirs: String) async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            _ = try cloud.simulation.use { try $0.createAccount("bert") }
            let two = try await cloud.open(account: "bert")
            let (here, there) = (try await cloud.publicDatabase(of: one), try await cloud.publicDatabase(of: two))
            try await here.save(Record(theirs, ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))

            // Both of one chunk, and of several.
            for (round, bytes) in [(50_000, 600_000), (600_000, 50_000)].enumerated() {
                let content = SplitMix64.bytes(bytes.1, seed: UInt64(round + 1))
                var foreign = try #require(try await there.record(RecordID(theirs)))
                foreign["photo"] = try RecordAsset(SplitMix64.bytes(bytes.0, seed: 9))
                var own = Record("own\(round)", [:])
                own["photo"] = try RecordAsset(content)
                try await there.modify(saving: [foreign, own], deleting: [], atomically: false)
                try await there.waitUntilSent(timeout: .seconds(60))
                #expect(try await there.conflicts.rejected().map(\.id.name) == [theirs])
                #expect(try await data("own\(round)", here) == content)
                #expect(try await there.conflicts.dismissRejected() == [RecordID(theirs)])
                try await two.settle()
                #expect(try cloud.uploadCount() == 0)
            }
        }
    }

    @Test func withoutAnAccountAssetsAreFetched() async throws {
        try await withRecords { cloud in
            let here = try await cloud.publicDatabase(of: try await cloud.open())
            let content = SplitMix64.bytes(300_000, seed: 1)
            try await save("a", content, here)
            try await here.waitUntilSent(timeout: .seconds(60))
            let token = try cloud.simulation.use { cloud in
                var request = WireCreateAppToken()
                request.appID = RecordCloud.app.rawValue
                return try cloud.operate("CreateAppToken", request) as WireCreateAppTokenReply
            }
            let session = try await cloud.openPublic(token.secret)
            let database = try await session.recordContainer().publicDatabase
            #expect(try await data("a", database) == content)
        }
    }
}
