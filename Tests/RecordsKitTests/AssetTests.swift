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

/// Bytes beside records: saved here, sent before their records, fetched there.
@Suite struct AssetTests {
    typealias Device = RecordCloud.Device
    /// Not the database's.
    typealias Record = NephosKit.Record

    @discardableResult
    func save(_ name: String, _ data: Data, _ database: RecordDatabase) async throws -> RecordAsset {
        let asset = try RecordAsset(data)
        var record = (try? await database.record(RecordID(name))) ?? Record(name, [:])
        record["photo"] = asset
        return try #require(try await database.save(record)["photo"] as RecordAsset?)
    }

    func data(_ name: String, _ database: RecordDatabase) async throws -> Data {
        let record = try #require(try await database.record(RecordID(name)))
        return try await database.assets.data(of: #require(record["photo"] as RecordAsset?), in: record.id)
    }

    private func files(_ device: Device) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: device.session.home.path + "/content")) ?? [])
            .filter { !$0.hasPrefix(".") }
    }

    /// Of uploads, by the connections that were made for them.
    private func connectionCount(_ device: Device) async throws -> Int {
        try await device.database.scope(of: RecordZone.defaultName).perform { driver, completion in
            completion(.success((driver.model as? RecordZoneModel)?.uploads.connectionCount ?? 0))
        }
    }

    // MARK: From one device to another

    @Test(arguments: [0, 1, 5000, 300_000, 3_000_000])
    func anAssetThatIsSavedHereIsFetchedThere(count: Int) async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let content = SplitMix64.bytes(count, seed: UInt64(count))
            let asset = try await save("a", content, one.database)
            #expect(try asset.length == UInt64(count) && asset == RecordAsset(content))
            try await one.settle()
            try await two.settle()
            let record = try #require(try await two.database.record(RecordID("a")))
            let there = try #require(record["photo"] as RecordAsset?)
            #expect(there == asset && there.id == asset.id)
            #expect(try await two.database.assets.isHere(there) == (count == 0))
            #expect(try await data("a", two.database) == content)
            // What has come stays here.
            two.setOffline(true)
            #expect(try await two.database.assets.isHere(there))
            #expect(try await data("a", two.database) == content)
            #expect(try await one.proves())
        }
    }

    @Test func aListHasAssetsOfAllSizes() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let contents = [0, 10, 200_000, 10].enumerated().map { SplitMix64.bytes($1, seed: UInt64($0)) }
            var record = Record("a", [:])
            record["photos"] = try contents.map { try RecordAsset($0) }
            try await one.database.save(record)
            try await one.settle()
            try await two.settle()
            let there = try #require(try await two.database.record(RecordID("a")))
            let assets = try #require(there["photos"] as [RecordAsset]?)
            for (asset, content) in zip(assets, contents) {
                #expect(try await two.database.assets.data(of: asset, in: there.id) == content)
            }
            #expect(assets.count == 4)
        }
    }

    @Test func whatIsSavedOfflineIsReadHereAndSentLater() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            one.setOffline(true)
            let content = SplitMix64.bytes(400_000, seed: 1)
            try await save("a", content, one.database)
            #expect(try await data("a", one.database) == content)
            try await save("b", content, one.database)
            try await one.database.save(Record("plain", ["n": 1]))
            cloud.simulation.pass(.seconds(60))
            // Whoever is about to sign out sees how much that is.
            let unsent = try #require(try await one.session.unsentChanges().first)
            #expect(unsent.bytes == 400_000)
            #expect(unsent.items.map(\.bytes) == [400_000, 400_000, 0])
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.session.unsentChanges().isEmpty)
            try await two.settle()
            #expect(try await data("a", two.database) == content)
        }
    }

    /// Of a file, into a file.
    @Test func aFileIsAnAssetAndAnAssetIsAFile() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let content = SplitMix64.bytes(1_500_000, seed: 3)
            let source = cloud.root + "/source"
            try content.write(to: URL(fileURLWithPath: source))
            var record = Record("a", [:])
            record["photo"] = try await RecordAsset(contentsOf: URL(fileURLWithPath: source))
            try await one.database.save(record)
            // It is in the home by now.
            unlink(source)
            try await one.settle()
            try await two.settle()
            let there = try #require(try await two.database.record(RecordID("a")))
            let target = cloud.root + "/target"
            try await two.database.assets.download(
                #require(there["photo"]), of: there.id, to: URL(fileURLWithPath: target))
            #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == content)
        }
    }

    @Test func aFileThatWasWrittenMeanwhileIsNotSaved() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let source = cloud.root + "/source"
            try SplitMix64.bytes(100_000, seed: 3).write(to: URL(fileURLWithPath: source))
            var record = Record("a", [:])
            record["photo"] = try await RecordAsset(contentsOf: URL(fileURLWithPath: source))
            try SplitMix64.bytes(100_000, seed: 4).write(to: URL(fileURLWithPath: source))
            let error = await #expect(throws: CloudError.self) { try await one.database.save(record) }
            #expect(error?.code == .constraintViolation)
            #expect(try await one.database.record(RecordID("a")) == nil)
            #expect(files(one).isEmpty)
        }
    }

    // MARK: What travels

    @Test func theSameBytesAreSentOnce() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let content = SplitMix64.bytes(500_000, seed: 1)
            try await save("a", content, one.database)
            try await one.settle()
            #expect(try await connectionCount(one) == 1)
            cloud.simulation.pass(.seconds(30))
            // In the same record nothing changes; in another nothing has to be sent.
            let tag = try await one.database.record(RecordID("a"))?.changeTag
            try await save("a", content, one.database)
            #expect(try await one.database.record(RecordID("a"))?.changeTag == tag)
            try await save("b", content, one.database)
            try await one.settle()
            #expect(try await connectionCount(one) == 1)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("b", two.database) == content)
            #expect(files(one).count(where: { $0 != "." }) == 1)
        }
    }

    /// Two saves, perhaps of two processes, bring the same at once: the first one's upload reads from its file.
    @Test func whatTwoBringAtOnceIsWhereTheFirstHasPutIt() async throws {
        try await withRecords { cloud in
            let database = try await cloud.open().database
            let asset = try RecordAsset(SplitMix64.bytes(300_000, seed: 5))
            var staged: [StagedAssets] = []
            for name in ["a", "b"] {
                var record = Record(name, [:])
                record["photo"] = asset
                staged.append(try #require(try await database.stage([record], areAllNew: true)))
            }
            let now = database.session.engine.stamp.now
            var files: [DocumentID?] = []
            for one in staged {
                files.append(
                    try database.session.local.write { rows in
                        let assets = database.copies(rows)
                        try one.keep(in: assets, now: now)
                        return try assets.copy(of: asset.wire)?.file
                    })
                one.end()
            }
            #expect(files[0] != nil && files[0] == files[1])
        }
    }

    @Test func onlyChunksThatTheServerLacksTravel() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let content = SplitMix64.bytes(10 << 20, seed: 99)
            try await save("a", content, one.database)
            try await one.settle()
            cloud.setSlow(.milliseconds(300))
            try await save("a", content + SplitMix64.bytes(2 << 20, seed: 1), one.database)
            let total = try await cloud.uploadTotal(one)
            #expect(total >= 2 << 20 && total <= 4 << 20)
            cloud.setSlow(nil)
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content + SplitMix64.bytes(2 << 20, seed: 1))
        }
    }

    @Test func anUploadThatWasCutShortGoesOn() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            cloud.setSlow(.milliseconds(300))
            let content = SplitMix64.bytes(48 << 20, seed: 99)
            try await save("a", content, one.database)
            let done = try await cloud.upload(24 << 20, one)
            one.session.close()
            cloud.simulation.pass(.seconds(5))
            let session = try await cloud.openSession(home: one.session.home.path)
            let again = Device(
                name: "again", session: session,
                database: try await session.recordContainer(app: RecordCloud.app).privateDatabase,
                simulation: cloud.simulation)
            let total = try await cloud.uploadTotal(again)
            #expect(total > 0 && total <= 48 << 20 - done)
            cloud.setSlow(nil)
            try await again.settle()
            #expect(try await again.database.conflicts.rejected().isEmpty)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// After a day the server removes what nobody goes on with.
    @Test func anUploadOfAnAssetThatHasEndedIsBegunAnew() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            cloud.setSlow(.milliseconds(300))
            let content = SplitMix64.bytes(10 << 20, seed: 99)
            try await save("a", content, one.database)
            _ = try await cloud.upload(5 << 20, one)
            one.session.close()
            // The parts that were under way arrive before.
            cloud.simulation.pass(.seconds(5))
            cloud.simulation.use { $0.skip(.seconds(24 * 3600)) }
            await cloud.simulation.run { $0.network.run(for: .seconds(90)) }
            #expect(try cloud.uploadCount() == 0)
            cloud.setSlow(nil)
            let again = try await cloud.open(home: one.session.home.path)
            try await again.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
            #expect(try cloud.uploadCount() == 0)
        }
    }

    @Test func aLongAssetComesOverALossyNetwork() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            cloud.simulation.use { $0.network.faults = Faults(loss: 0.05, duplication: 0.05, reordering: 0.05) }
            let content = SplitMix64.bytes(20 << 20, seed: 20)
            try await save("a", content, one.database)
            try await one.settle()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
            cloud.simulation.use { $0.network.faults = .none }
            #expect(try await two.proves())
        }
    }

    /// What has nothing to do with it goes out beside it; what was made from it waits.
    @Test func aNoteDoesNotWaitForAFilm() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            cloud.setSlow(.seconds(2))
            try await save("film", SplitMix64.bytes(20 << 20, seed: 99), one.database)
            _ = try await cloud.upload(1 << 20, one)
            try await one.database.save(Record("note", ["n": 1]))
            var record = try #require(try await one.database.record(RecordID("film")))
            record.parent = "note"
            try await one.database.save(record, policy: .changedKeys)
            var child = Record("child", ["n": 1])
            child.parent = "film"
            try await one.database.save(child)
            cloud.simulation.pass(.seconds(4))
            let two = try await cloud.open()
            #expect(try await two.contents().keys.sorted() == ["note"])
            let status = try await one.database.status()
            #expect(status.pending.first?.reason == Preparation.sending.rawValue)
            #expect(status.pending.dropFirst().allSatisfy { $0.reason == Preparation.behind.rawValue })
            cloud.setSlow(nil)
            try await one.settle()
            try await two.settle()
            #expect(try await two.contents().keys.sorted() == ["child", "film", "note"])
            #expect(try await one.database.conflicts.rejected().isEmpty)
        }
    }

    /// What a later request leaves for the app is not left before what an earlier one leaves.
    @Test func whatIsLeftForTheAppIsLeftInItsOrder() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            cloud.setSlow(.seconds(2))
            var film = Record("film", ["n": 1])
            film["file"] = try RecordAsset(SplitMix64.bytes(20 << 20, seed: 99))
            try await one.database.modify(saving: [film], deleting: [], clientToken: Data([1]))
            _ = try await cloud.upload(1 << 20, one)
            try await one.database.modify(saving: [Record("note", ["n": 1])], deleting: [], clientToken: Data([2]))
            try await one.database.save(Record("other", ["n": 1]))
            cloud.simulation.pass(.seconds(4))
            let reasons = try await one.database.status().pending.map(\.reason)
            #expect(reasons == [Preparation.sending.rawValue, Preparation.behind.rawValue])
            cloud.setSlow(nil)
            try await one.settle()
            #expect(try await one.database.clientChangeToken(zone: RecordZone.defaultName) == Data([2]))
            #expect(try await one.contents().keys.sorted() == ["film", "note", "other"])
        }
    }

    // MARK: What is not taken

    @Test func aConflictKeepsBothAssetsAndSendsTheOneThatIsKept() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let contents = (0..<3).map { SplitMix64.bytes(150_000, seed: UInt64($0)) }
            try await save("a", contents[0], one.database)
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await save("a", contents[1], one.database)
            try await save("a", contents[2], two.database)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let conflict = try #require(try await two.database.conflicts.list().first)
            let (server, client) = (
                conflict.server?["photo"] as RecordAsset?, conflict.client?["photo"] as RecordAsset?
            )
            #expect(try await two.database.assets.data(of: #require(server), in: conflict.id) == contents[1])
            // However little room there is.
            try two.session.setContentCache(maxBytes: 0)
            cloud.simulation.pass(.seconds(5))
            #expect(try await two.database.assets.data(of: #require(client), in: conflict.id) == contents[2])
            try await two.database.conflicts.resolve(conflict, keeping: .client)
            try await two.settle()
            try await one.settle()
            #expect(try await data("a", one.database) == contents[2])
            cloud.simulation.pass(.seconds(5))
            #expect(files(two).isEmpty)
        }
    }

    @Test func whatIsRefusedKeepsItsAssetUntilItIsDismissed() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            try one.session.setContentCache(maxBytes: 0)
            let content = SplitMix64.bytes(200_000, seed: 1)
            for name in ["a", "b"] {
                var record = Record(name, [:])
                record["photo"] = try RecordAsset(content)
                record.parent = "nobody"
                try await one.database.save(record)
                try await one.settle()
            }
            cloud.simulation.pass(.seconds(5))
            let refused = try await one.database.conflicts.rejected()
            #expect(refused.map(\.error.code) == [.referenceViolation, .referenceViolation])
            var record = try #require(refused.first?.record)
            #expect(try await one.database.assets.data(of: #require(record["photo"]), in: record.id) == content)
            // It is saved again, without what was in the way.
            record.parent = nil
            try await one.database.save(record)
            try await one.settle()
            try await one.database.conflicts.dismissRejected()
            cloud.simulation.pass(.seconds(5))
            #expect(files(one).isEmpty)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
        }
    }

    /// Of one there are no bytes here, and the server has them not.
    @Test func anAssetThatNobodyHasIsRefused() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            var record = Record("a", ["n": 1])
            record["photo"] = RecordAsset(length: 5, id: String(repeating: "ab", count: 32), depth: 0)
            try await one.database.save(record)
            try await one.settle()
            let refused = try await one.database.conflicts.rejected()
            #expect(refused.map(\.error.code) == [.assetNotAvailable])
        }
    }

    /// The server has lost what it said that it had.
    @Test func whatTheServerLacksIsStoredAgainOnce() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            one.setOffline(true)
            let content = SplitMix64.bytes(200_000, seed: 1)
            try await save("a", content, one.database)
            // What it is told wrongly: all of it is stored.
            try one.session.local.write { try $0.execute(sql: "UPDATE record_uploads SET is_stored = 1") }
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.database.conflicts.rejected().isEmpty)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
        }
    }

    @Test func anAssetThatIsGoneFromTheHomeIsToldOfAndHoldsNothingUp() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            one.setOffline(true)
            try await save("a", SplitMix64.bytes(200_000, seed: 1), one.database)
            for file in files(one) { unlink(one.session.home.path + "/content/" + file) }
            try await save("b", SplitMix64.bytes(200_000, seed: 2), one.database)
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.database.conflicts.rejected().map(\.id.name) == ["a"])
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("b", two.database) == SplitMix64.bytes(200_000, seed: 2))
        }
    }

    // MARK: What stays here

    @Test func aFieldThatIsRemovedFreesItsAsset() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await save("a", SplitMix64.bytes(200_000, seed: 1), one.database)
            try await one.settle()
            try await two.settle()
            _ = try await data("a", two.database)
            cloud.simulation.pass(.seconds(5))
            #expect(files(one).count == 1 && files(two).count == 1)
            var record = try #require(try await one.database.record(RecordID("a")))
            record["photo"] = nil
            try await one.database.save(record)
            try await one.settle()
            try await two.settle()
            cloud.simulation.pass(.seconds(5))
            #expect(files(one).isEmpty && files(two).isEmpty)
        }
    }

    @Test func theAssetThatWasUsedLongestAgoGoesFirst() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for name in ["a", "b", "c"] {
                try await save(name, SplitMix64.bytes(200_000, seed: UInt64(name.utf8.first ?? 0)), one.database)
            }
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 500_000)
            for name in ["a", "b", "a", "c"] {
                _ = try await data(name, two.database)
                cloud.simulation.pass(.seconds(120))
            }
            #expect(files(two).count == 2)
            two.setOffline(true)
            for name in ["a", "c"] { _ = try await data(name, two.database) }
            #expect(try two.session.contentCache().bytes == 400_000)
            // What waits to be sent does not count, and stays.
            try await save("d", SplitMix64.bytes(100_000, seed: 4), two.database)
            try two.session.setContentCache(maxBytes: 0)
            #expect(files(two).count == 1)
            #expect(try await data("d", two.database) == SplitMix64.bytes(100_000, seed: 4))
        }
    }

    @Test func aDamagedCopyOfAnAssetIsFetchedAnew() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let content = SplitMix64.bytes(300_000, seed: 1)
            try await save("a", content, one.database)
            try await one.settle()
            let file = try #require(files(one).first)
            try SplitMix64.bytes(300_000, seed: 2).write(
                to: URL(fileURLWithPath: one.session.home.path + "/content/" + file))
            #expect(try await data("a", one.database) == content)
            cloud.simulation.pass(.seconds(5))
            one.setOffline(true)
            #expect(try await data("a", one.database) == content)
        }
    }

    /// The same bytes are saved from a whole source while the copy of them is damaged: that copy becomes nobody's.
    @Test func aDamagedCopyNeverTakesThePlaceOfGoodBytes() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let content = SplitMix64.bytes(300_000, seed: 1)
            try await save("a", content, one.database)
            try await one.settle()
            let file = try #require(files(one).first)
            try SplitMix64.bytes(300_000, seed: 2).write(
                to: URL(fileURLWithPath: one.session.home.path + "/content/" + file))
            one.setOffline(true)
            try await save("b", content, one.database)
            for name in ["b", "a"] { #expect(try await data(name, one.database) == content) }
            one.setOffline(false)
            try await one.settle()
            #expect(files(one).count == 1)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("b", two.database) == content)
        }
    }

    @Test func aDownloadThatFailsLeavesTheFileAsItWas() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await save("a", SplitMix64.bytes(300_000, seed: 1), one.database)
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            let target = cloud.root + "/target"
            try Data("old".utf8).write(to: URL(fileURLWithPath: target))
            let record = try #require(try await two.database.record(RecordID("a")))
            let asset = try #require(record["photo"] as RecordAsset?)
            let error = await #expect(throws: CloudError.self) {
                try await two.database.assets.download(
                    asset, of: record.id, to: URL(fileURLWithPath: target), timeout: .seconds(5))
            }
            #expect(
                error?.code == .networkUnavailable || error?.code == .deadlineExceeded, "\(String(describing: error))")
            #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == Data("old".utf8))
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: cloud.root).count(where: { $0.hasPrefix(".nephos") }
                ) == 0)
        }
    }

    @Test func whoLeavesTakesTheirAssetsAlong() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            try await save("a", SplitMix64.bytes(300_000, seed: 1), one.database)
            try await one.settle()
            #expect(files(one).count == 1)
            _ = try cloud.simulation.use { try $0.createAccount("bert") }
            _ = try await one.session.signOut()
            try await one.session.signIn(
                connection: ConnectionString(cloud.simulation.use { try $0.connection }.description), account: "bert",
                password: TestCloud.password, deviceName: "other")
            cloud.simulation.pass(.seconds(10))
            #expect(files(one).isEmpty)
        }
    }

    @Test func whatARestoredServerHasLostComesBackWithItsAssets() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            try await one.database.save(Record("old", ["n": 1]))
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            let content = SplitMix64.bytes(300_000, seed: 1)
            try await save("a", content, one.database)
            try await one.settle()
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            one.database.synchronize()
            try await one.database.waitUntilCurrent(timeout: .seconds(120))
            for _ in 0..<2 { try await one.settle() }
            #expect(try await one.database.conflicts.rejected().isEmpty)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await data("a", two.database) == content)
            #expect(try await one.proves())
        }
    }

    // MARK: Uploads that are over

    /// What was to come into it is given up before the server hears of that, and the process ends: the upload ends by itself.
    @Test func ofADeletedZoneNoUploadIsLeft() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            try await one.database.zones.make("work")
            try await one.settle("work")
            cloud.setSlow(.seconds(3))
            var record = Record("a", zone: "work", [:])
            record["photo"] = try RecordAsset(SplitMix64.bytes(12 << 20, seed: 1))
            try await one.database.save(record)
            while try await one.database.uploadProgress(zone: "work").done < 2 << 20 {
                cloud.simulation.pass(.milliseconds(20))
            }
            #expect(try cloud.uploadCount() == 1)
            one.setOffline(true)
            try await one.database.zones.delete("work")
            one.session.close()
            #expect(try cloud.uploadCount() == 1)
            cloud.setSlow(nil)
            cloud.simulation.use { $0.skip(.seconds(24 * 3600)) }
            await cloud.simulation.run { $0.network.run(for: .seconds(90)) }
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// The server has taken it, and its answer comes to a process that ends before it has asked for anything else.
    @Test(arguments: [false, true]) func ofWhatIsSavedNoUploadIsLeft(isPublic: Bool) async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let database = isPublic ? try await cloud.publicDatabase(of: one) : one.database
            try await save("a", SplitMix64.bytes(300_000, seed: 1), database)
            // Whoever waits for it is told in the moment of the answer.
            try await database.waitUntilSent(timeout: .seconds(60))
            one.session.close()
            // What is over is removed in the next round.
            await cloud.simulation.run { $0.network.run(for: .seconds(90)) }
            #expect(try cloud.uploadCount() == 0)
        }
    }
}
