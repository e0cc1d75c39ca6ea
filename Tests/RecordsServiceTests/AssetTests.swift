import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosServiceKit

/// Assets lie beside records: what a record has is there before it is saved, counts once, and goes with the last that
/// has it.
@Suite struct AssetTests {
    private let house: RecordHouse
    private let here: RecordDevice

    init() throws {
        house = try RecordHouse()
        here = try house.device()
    }

    private func settle() { house.cloud.network.run(for: .seconds(130)) }

    private func chunks() throws -> Int64 { try house.rows(of: "content_chunks") }

    @Test func aRecordIsSavedOnceItsAssetsAreStored() throws {
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        expect(.assetNotAvailable) { try here.save("a", ["photo": .asset(photo.asset)]) }
        let upload = try here.store(photo)
        try here.save("a", ["photo": .asset(photo.asset)], upload: upload)
        #expect(try here.list()["a"]?.fields.first?.asset == photo.asset)
        #expect(try here.fetch(photo.ids[1]) == photo.chunks[1])
        #expect(try here.readNodes(photo) == photo.nodes)
        #expect(try house.rows(of: "record_assets") == 1)
    }

    /// Both are one chunk and its uses; nothing is left of the upload.
    @Test func whatTwoRecordsHaveIsStoredAndCountedOnce() throws {
        let photo = TestContent(seed: 1, chunks: [100_000])
        try here.save("a", ["photo": .asset(photo.asset)], upload: try here.store(photo))
        let used = try house.used(of: here.mover.account)
        #expect(used >= 100_000)
        #expect(try here.missing(photo.ids).isEmpty)
        try here.save("b", ["photo": .asset(photo.asset), "again": .assets(.with { $0.values = [photo.asset] })])
        #expect(try house.used(of: here.mover.account) - used < 2000)
        try here.delete("a")
        settle()
        #expect(try chunks() == 1 && here.fetch(photo.ids[0]) == photo.chunks[0])
        try here.delete("b")
        settle()
        #expect(try chunks() == 0 && house.rows(of: "record_assets") == 0)
        #expect(try house.used(of: here.mover.account) < 1000)
    }

    @Test func aReplacedAssetGoesAndOthersStay() throws {
        let (old, new) = (TestContent(seed: 1, chunks: [100_000]), TestContent(seed: 2, chunks: [90_000, 60_000]))
        let version = try here.save("a", ["photo": .asset(old.asset), "x": .integer(1)], upload: try here.store(old))
        let next = try here.save("a", ["x": .integer(2)], base: version)
        settle()
        #expect(try chunks() == 1)
        try here.save("a", ["photo": .asset(new.asset)], base: next, upload: try here.store(new))
        settle()
        #expect(try chunks() == 2 && here.fetch(new.ids[1]) == new.chunks[1])
        expect(.unknownItem) { _ = try here.fetch(old.ids[0]) }
    }

    /// What a save by force overwrites is kept with its assets, and both go with their time.
    @Test func whatIsOverwrittenByForceKeepsItsAssets() throws {
        let (old, new) = (TestContent(seed: 1, chunks: [100_000]), TestContent(seed: 2, chunks: [90_000]))
        try here.save("a", ["photo": .asset(old.asset)], upload: try here.store(old))
        try here.save(
            "a", ["photo": .asset(new.asset)], base: RecordDevice.version(), policy: .changedKeys,
            upload: try here.store(new))
        settle()
        #expect(try chunks() == 2)
        let entry = try #require(try here.history(of: "a").first)
        #expect(entry.record.fields.first?.asset == old.asset)
        #expect(try here.fetch(old.ids[0]) == old.chunks[0])
        try here.delete("a")
        settle()
        #expect(try chunks() == 1)
        // A month passes.
        house.cloud.skip(RecordLimits.historyRetention + .seconds(3600), of: .records)
        house.cloud.network.run(for: .seconds(700))
        #expect(try chunks() == 0 && house.rows(of: "record_assets") == 0)
        #expect(try house.rows(of: "record_asset_endings") == 0)
    }

    @Test func aDeletedZoneGivesItsAssetsBack() throws {
        let photo = TestContent(seed: 1, chunks: Array(repeating: 5000, count: 30))
        here.zone = try here.makeZone("work")
        let upload = try here.store(photo)
        for name in 0..<20 { try here.save("r\(name)", ["photo": .asset(photo.asset)], upload: upload) }
        try here.close(upload)
        settle()
        #expect(try chunks() == 30 && house.rows(of: "record_assets") == 20)
        try here.deleteZone("work")
        settle()
        #expect(try chunks() == 0 && house.rows(of: "record_assets") == 0)
        #expect(try house.used(of: here.mover.account) < 1000)
    }

    /// What was stored and never saved goes with its upload.
    @Test func anUploadThatIsClosedLeavesNothing() throws {
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        let upload = try here.store(photo)
        #expect(try house.used(of: here.mover.account) >= 170_000)
        try here.close(upload)
        settle()
        #expect(try chunks() == 0 && house.rows(of: "content_nodes") == 0)
        #expect(try house.used(of: here.mover.account) == 0)
        expect(.assetNotAvailable) { try here.save("a", ["photo": .asset(photo.asset)], upload: upload) }
    }

    /// In a zone that changes as a whole nothing is saved; in another what can be.
    @Test func oneMissingAssetFailsItsRecordAlone() throws {
        let photo = TestContent(seed: 1, chunks: [100_000])
        let changes = [
            WireRecordChange.save("a", ["photo": .asset(photo.asset)]), .save("b", ["x": .integer(1)]),
        ]
        let atomic = try here.modify(changes)
        #expect(atomic.records.map { CloudError($0.failure).code } == [.assetNotAvailable, .batchRequestFailed])
        let apart = try here.modify(changes, atomic: false)
        #expect(apart.records.map(\.hasFailure) == [true, false])
        #expect(try here.list().keys.sorted() == ["b"])
    }

    /// A length or a depth that is not the content's names no content.
    @Test func anAssetThatIsNotAsWasSaidIsRefused() throws {
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        let upload = try here.store(photo)
        var longer = photo.asset
        longer.length += 1
        expect(.assetNotAvailable) { try here.save("a", ["photo": .asset(longer)], upload: upload) }
        var deeper = photo.asset
        deeper.depth += 1
        expect(.assetNotAvailable) { try here.save("a", ["photo": .asset(deeper)], upload: upload) }
        for wrong in [
            WireRecordAsset.with { $0.length = 5 },
            .with { $0.root = Data(photo.root.bytes) },
            .with { ($0.root, $0.length) = (Data([1, 2]), 5) },
            .with { ($0.root, $0.length, $0.depth) = (Data(photo.root.bytes), 5, .max) },
            .with { ($0.root, $0.length) = (Data(photo.root.bytes), UInt64(BulkLimits.chunkBytesMax) + 1) },
        ] { expect(.invalidArguments) { try here.save("a", ["photo": .asset(wrong)]) } }
        expect(.limitExceeded) {
            try here.save(
                "a", ["photo": .asset(.with { ($0.root, $0.length, $0.depth) = (Data(photo.root.bytes), 2 << 30, 2) })])
        }
        // Nothing needs no bytes.
        try here.save("empty", ["photo": .asset(WireRecordAsset())])
        #expect(try house.rows(of: "record_assets") == 0)
    }

    /// Of another account, another app, another container: a known hash opens nothing, and is asked about in vain.
    @Test func nobodyGetsAtAnothersAssetsByTheirHash() throws {
        let photo = TestContent(seed: 1, chunks: [100_000])
        try here.save("a", ["photo": .asset(photo.asset)], upload: try here.store(photo))
        try house.cloud.createAccount("bert")
        let stranger = try house.device(account: "bert")
        #expect(try stranger.missing(photo.ids) == [0])
        expect(.unknownItem) { _ = try stranger.fetch(photo.ids[0]) }
        expect(.assetNotAvailable) { try stranger.save("a", ["photo": .asset(photo.asset)]) }
        let other = try house.device(app: "T.other")
        other.container = "T.elsewhere"
        #expect(try other.missing(photo.ids) == [0])
        expect(.unknownItem) { _ = try other.fetch(photo.ids[0]) }
        expect(.assetNotAvailable) { try other.save("a", ["photo": .asset(photo.asset)]) }
        other.container = RecordHouse.container
        expect(.missingEntitlement) { _ = try other.missing(photo.ids) }
        expect(.missingEntitlement) { _ = try other.fetch(photo.ids[0]) }
        // In another container of the app it is sent again.
        here.container = "T.shared"
        #expect(try here.missing(photo.ids) == [0])
        expect(.assetNotAvailable) { try here.save("a", ["photo": .asset(photo.asset)]) }
    }

    @Test func aFullPlanRefusesTheUploadBeforeTheFirstByte() throws {
        try house.cloud.savePlan("small", bytes: 100_000)
        var request = WireSetPlan()
        (request.accountName, request.planID) = (TestCloud.accountName, "small")
        try house.cloud.operate("SetPlan", request, as: WireSetPlanReply.self)
        house.cloud.network.run(for: .seconds(10))
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        var open = WireOpenTransfer()
        (open.transferID, open.uploadBytes) = (Data(UUID().uuidString.utf8.prefix(16)), 170_000)
        open.container = RecordHouse.container
        expect(.quotaExceeded) { try here.call("OpenTransfer", open, as: WireOpenTransferReply.self) }
        #expect(try chunks() == 0 && here.missing(photo.ids) == [0, 1])
    }

    /// A restart, also in the middle of an upload, changes nothing of what is stored.
    @Test func whatIsStoredSurvivesARestart() throws {
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        let upload = try here.store(photo)
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        try here.save("a", ["photo": .asset(photo.asset)], upload: upload)
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        settle()
        #expect(try here.fetch(photo.ids[0]) == photo.chunks[0])
    }

    /// Assets that a request changes have a bound, and so have those of a record.
    @Test func assetsOfARecordAndOfARequestAreBounded() throws {
        let photo = TestContent(seed: 1, chunks: [5000])
        let many = (0..<RecordLimits.assetsMax + 1).map { number in
            WireRecordAsset.with {
                ($0.length, $0.root) = (5000, Data(repeating: UInt8(number), count: 32))
            }
        }
        expect(.limitExceeded) { try here.save("a", ["photos": .assets(.with { $0.values = many })]) }
        let upload = try here.store(photo)
        try here.save("a", ["photo": .asset(photo.asset)], upload: upload)
        let changes = (0..<11).map {
            WireRecordChange.save(
                "r\($0)", ["photos": .assets(.with { $0.values = Array(many.prefix(RecordLimits.assetsMax)) })])
        }
        expect(.limitExceeded) { _ = try here.modify(changes) }
        #expect(try here.list().keys.sorted() == ["a"])
    }

    /// One record gives up what another has from now on, in either order, and in two zones.
    @Test func anAssetMovesFromOneRecordToAnother() throws {
        let photo = TestContent(seed: 1, chunks: [50_000])
        var version = try here.save("a", ["photo": .asset(photo.asset)], upload: try here.store(photo))
        for (index, isFirst) in [true, false].enumerated() {
            let gives = WireRecordChange.removing("photo", of: "a", base: version)
            let takes = WireRecordChange.save("b\(index)", ["photo": .asset(photo.asset)])
            let outcome = try here.modify(isFirst ? [gives, takes] : [takes, gives])
            #expect(outcome.records.allSatisfy { !$0.hasFailure }, "\(outcome)")
            version = try here.save("a", ["photo": .asset(photo.asset)], base: gives.save.version)
        }
        // A deletion, and a save of what goes with it.
        let outcome = try here.modify([.delete("a"), .save("c", ["photo": .asset(photo.asset)])])
        #expect(outcome.records.allSatisfy { !$0.hasFailure }, "\(outcome)")
        var request = WireModifyRecords()
        request.container = RecordHouse.container
        let (one, other) = (try here.makeZone("one"), try here.makeZone("other"))
        here.zone = one
        try here.save("x", ["photo": .asset(photo.asset)])
        for (zone, change) in [
            (one, WireRecordChange.delete("x")), (other, .save("x", ["photo": .asset(photo.asset)])),
        ] {
            var changes = WireZoneChanges()
            (changes.zoneID, changes.changes) = (zone, [change])
            request.zones.append(changes)
        }
        let reply = try here.call("ModifyRecords", request, as: WireModifyRecordsReply.self)
        #expect(reply.zones.allSatisfy { !$0.hasFailure && $0.records.allSatisfy { !$0.hasFailure } }, "\(reply)")
        settle()
        #expect(try here.fetch(photo.ids[0]) == photo.chunks[0])
    }

    /// Deletions give back however much goes with them.
    @Test func manyRecordsWithManyAssetsAreDeletedAtOnce() throws {
        // Each of its chunks is an asset.
        let content = TestContent(seed: 100, chunks: Array(repeating: 4096, count: RecordLimits.assetsMax))
        let upload = try here.store(content, nodes: false)
        let photos = WireAssetList.with { list in
            list.values = content.ids.map { id in .with { ($0.length, $0.root) = (4096, Data(id.bytes)) } }
        }
        let target = WireRecordReference.with { ($0.record, $0.deletesSelf) = ("album", true) }
        try here.save("album", ["title": .string("all")])
        for name in 0..<12 {
            try here.save("r\(name)", ["photos": .assets(photos), "album": .reference(target)], upload: upload)
        }
        try here.close(upload)
        try here.delete("album")
        #expect(try here.list().isEmpty)
        settle()
        #expect(try chunks() == 0 && house.rows(of: "record_assets") == 0)
        #expect(try house.rows(of: "record_asset_endings") == 0)
    }

    /// Of zones of which nothing is done in the end as well.
    @Test func whatFailingZonesHaveLookedAtIsBounded() throws {
        let content = TestContent(seed: 100, chunks: Array(repeating: 4096, count: RecordLimits.assetsMax - 1))
        let upload = try here.store(content, nodes: false)
        // All but the last are there.
        let ids = content.ids.map { Data($0.bytes) } + [Data(repeating: 0xff, count: 32)]
        let photos = WireAssetList.with { list in
            list.values = ids.map { id in .with { ($0.length, $0.root) = (4096, id) } }
        }
        func ask(_ zones: [String]) throws -> [CloudError.Code?] {
            var request = WireModifyRecords()
            request.container = here.container
            request.transferID = Data(upload)
            for zone in zones {
                var changes = WireZoneChanges()
                changes.zoneID = zone
                changes.changes = [.save("a", ["photos": .assets(photos)])]
                request.zones.append(changes)
            }
            let reply = try here.call("ModifyRecords", request, as: WireModifyRecordsReply.self)
            return reply.zones.flatMap(\.codes)
        }
        let zones = try (0..<2 * RecordLimits.assetsOfRequestMax / RecordLimits.assetsMax + 1).map {
            try here.makeZone("z\($0)")
        }
        let most = Array(zones.dropLast())
        #expect(try ask(most) == most.map { _ in .assetNotAvailable })
        expect(.limitExceeded) { _ = try ask(zones) }
    }

    /// One content is named in one way.
    @Test func oneAssetNamedInTwoWaysIsRefused() throws {
        let photo = TestContent(seed: 1, chunks: [50_000])
        let upload = try here.store(photo)
        var other = photo.asset
        other.depth = 1
        expect(.invalidArguments) {
            try here.save("a", ["one": .asset(photo.asset), "two": .asset(other)], upload: upload)
        }
    }

    /// What a closed account had beside its records goes with it.
    @Test func aClosedAccountLeavesNoAssets() throws {
        try house.cloud.createAccount("bert")
        let bert = try house.device(account: "bert")
        let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
        try bert.save("a", ["photo": .asset(photo.asset)], upload: try bert.store(photo))
        var request = WireCloseAccount()
        request.accountName = "bert"
        try house.cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
        house.cloud.network.run(for: .seconds(60))
        for table in ["content_chunks", "content_uses", "content_nodes", "record_assets", "content_holds"] {
            #expect(try house.rows(of: table) == 0, "\(table)")
        }
    }
}

/// In a public database each record's assets are for whoever may read that record.
@Suite struct PublicAssetTests {
    private let house: PublicHouse
    private let photo = TestContent(seed: 1, chunks: [100_000, 70_000])

    init() throws { house = try PublicHouse() }

    @Test func whoMayReadARecordFetchesItsAssets() throws {
        let ann = try house.device()
        try ann.save("sea", ["photo": .asset(photo.asset)], upload: try ann.store(photo, for: "sea"), for: "sea")
        let bert = try house.device(PublicHouse.other)
        #expect(try bert.fetch(photo.ids[1], of: "sea") == photo.chunks[1])
        // Without an account, too: it reads, and stores nothing.
        let stranger = try house.stranger()
        #expect(try stranger.readNodes(photo, of: "sea") == photo.nodes)
        var open = WireOpenTransfer()
        open.container = stranger.content(of: "sea")
        #expect(try stranger.call("OpenTransfer", open, as: WireOpenTransferReply.self).ticket.count == 16)
        open.transferID = Data(repeating: 1, count: 16)
        open.uploadBytes = 1000
        expect(.permissionFailure) { try stranger.call("OpenTransfer", open, as: WireOpenTransferReply.self) }
        // It counts on the app, and on nobody's plan.
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) >= 170_000)
        #expect(try house.house.used(of: ann.mover.account) == 0)
    }

    @Test func whoMayNotReadARecordLearnsNothingOfItsAssets() throws {
        try house.setRoles(of: "Note", signedIn: .creating, everyone: .none)
        let (ann, bert) = (try house.device(), try house.device(PublicHouse.other))
        try ann.save("mine", ["photo": .asset(photo.asset)], upload: try ann.store(photo, for: "mine"), for: "mine")
        for name in ["mine", "none"] {
            expect(.unknownItem) { _ = try bert.fetch(photo.ids[0], of: name) }
            expect(.unknownItem) { _ = try bert.readNodes(photo, of: name) }
        }
        // Nor by storing something for it.
        expect(.permissionFailure) { _ = try bert.missing(photo.ids, for: "mine") }
        var open = WireOpenTransfer()
        (open.container, open.transferID, open.uploadBytes) = (bert.content(of: "mine"), RecordDevice.version(), 4096)
        expect(.permissionFailure) { try bert.call("OpenTransfer", open, as: WireOpenTransferReply.self) }
        // By a record of its own it finds nothing of another's either.
        let own = TestContent(seed: 7, chunks: [60_000])
        try bert.save("own", ["photo": .asset(own.asset)], upload: try bert.store(own, for: "own"), for: "own")
        expect(.unknownItem) { _ = try bert.fetch(photo.ids[0], of: "own") }
        #expect(try bert.missing(photo.ids, for: "own") == [0, 1])
        expect(.assetNotAvailable) { try bert.save("next", ["photo": .asset(photo.asset)], for: "next") }
        // An upload of the same id is another account's own.
        let upload = [UInt8](repeating: 9, count: 16)
        let secret = TestContent(seed: 8, chunks: [50_000])
        try ann.store(secret, for: "mine", in: upload)
        #expect(try bert.missing(secret.ids, for: "own", in: upload) == [0])
        expect(.assetNotAvailable) {
            try bert.save("next", ["photo": .asset(secret.asset)], upload: upload, for: "next")
        }
        expect(.permissionFailure) {
            try house.setRoles(of: "Note", signedIn: .none, everyone: .reading())
            _ = try bert.missing(photo.ids, for: "mine")
        }
    }

    /// Two records of one request may have the same.
    @Test func whatTwoRecordsOfARequestHaveIsStoredOnce() throws {
        let ann = try house.device()
        let small = TestContent(seed: 3, chunks: [50_000])
        let upload = try ann.store(small, for: "a")
        let outcome = try ann.modify(
            [.save("a", ["photo": .asset(small.asset)]), .save("b", ["photo": .asset(small.asset)])], upload: upload)
        #expect(outcome.records.allSatisfy { !$0.hasFailure }, "\(outcome)")
        try ann.delete("a")
        house.cloud.network.run(for: .seconds(130))
        #expect(try ann.fetch(small.ids[0], of: "b") == small.chunks[0])
        try ann.delete("b")
        house.cloud.network.run(for: .seconds(130))
        #expect(try house.house.rows(of: "content_chunks") == 0)
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) < 1000)
    }

    /// Who may make records and change none still ends what was opened.
    @Test func whoMayOnlyMakeRecordsEndsItsUploads() throws {
        try house.setRoles(of: "Note", creator: .none, signedIn: .creating, everyone: .none)
        let bert = try house.device(PublicHouse.other)
        let upload = try bert.store(photo, for: "report")
        try bert.save("report", ["photo": .asset(photo.asset)], upload: upload, for: "report")
        var close = WireCloseTransfer()
        (close.transferID, close.container) = (Data(upload), bert.content(of: "report"))
        try bert.call("CloseTransfer", close, as: WireCloseTransferReply.self)
        house.cloud.network.run(for: .seconds(130))
        #expect(try house.house.rows(of: "storage_reservations") == 0)
    }

    /// What was overwritten in a public database is no way to its assets for who makes a record of that name anew.
    @Test func whoMakesARecordAnewHasNothingOfTheOneBefore() throws {
        let (ann, bert) = (try house.device(), try house.device(PublicHouse.other))
        let small = TestContent(seed: 3, chunks: [50_000])
        try ann.save("sea", ["photo": .asset(small.asset)], upload: try ann.store(small, for: "sea"), for: "sea")
        let change = WireRecordChange.removing("photo", of: "sea", base: RecordDevice.version(), policy: .changedKeys)
        #expect(try ann.modify([change]).records.allSatisfy { !$0.hasFailure })
        try ann.delete("sea")
        house.cloud.network.run(for: .seconds(130))
        #expect(try bert.missing(small.ids, for: "sea") == [0])
        expect(.assetNotAvailable) { try bert.save("sea", ["photo": .asset(small.asset)], for: "sea") }
        #expect(try house.house.rows(of: "content_chunks") == 0)
    }

    /// One device takes no more than a few of an app's uploads, and others have theirs.
    @Test func aDeviceHasFewOfAnAppsUploads() throws {
        let (ann, bert) = (try house.device(), try house.device(PublicHouse.other))
        func open(_ device: RecordDevice) throws {
            var open = WireOpenTransfer()
            (open.container, open.transferID) = (device.content(of: "sea"), RecordDevice.version())
            try device.call("OpenTransfer", open, as: WireOpenTransferReply.self)
        }
        for _ in 0..<8 { try open(ann) }
        expect(.serviceBusy) { try open(ann) }
        try open(bert)
    }

    /// However many devices it has; and others have theirs.
    @Test func anAccountHasAPartOfAnAppsPlan() throws {
        try house.cloud.savePlan("small", bytes: 1_000_000)
        var plan = WireSetPlan()
        (plan.appID, plan.planID) = (RecordHouse.app, "small")
        try house.cloud.operate("SetPlan", plan, as: WireSetPlanReply.self)
        house.cloud.network.run(for: .seconds(10))
        let (ann, second) = (try house.device(), try house.device())
        let bert = try house.device(PublicHouse.other)
        func open(_ device: RecordDevice, _ bytes: UInt64, _ upload: Data = RecordDevice.version()) throws {
            var open = WireOpenTransfer()
            (open.container, open.transferID, open.uploadBytes) = (device.content(of: "sea"), upload, bytes)
            try device.call("OpenTransfer", open, as: WireOpenTransferReply.self)
        }
        expect(.limitExceeded) { try open(ann, 500_001) }
        let upload = RecordDevice.version()
        try open(ann, 300_000, upload)
        expect(.serviceBusy) { try open(second, 300_000) }
        try open(second, 200_000)
        // It goes on with what it has.
        try open(ann, 300_000, upload)
        expect(.serviceBusy) { try open(ann, 300_001, upload) }
        try open(bert, 400_000)
        try ann.close([UInt8](upload), for: "sea")
        try open(second, 100_000)
    }

    /// Of a large plan it is a sixteenth, of a small one at most half.
    @Test func thePartOfAnAppsPlanFollowsItsSize() {
        #expect(StorageLedger.reservedForAppMax(plan: 0) == 0)
        #expect(StorageLedger.reservedForAppMax(plan: 100 << 20) == 50 << 20)
        #expect(StorageLedger.reservedForAppMax(plan: 512 << 20) == 64 << 20)
        #expect(StorageLedger.reservedForAppMax(plan: 64 << 30) == 4 << 30)
    }

    /// What nobody saves ends with its time, in the partition of the database.
    @Test func anUploadThatNobodySavesEnds() throws {
        let ann = try house.device()
        try ann.store(photo, for: "sea")
        #expect(try house.house.rows(of: "content_chunks") == 2)
        for service in [ServiceName.identity, .records] { house.cloud.skip(.seconds(25 * 3600), of: service) }
        house.cloud.network.run(for: .seconds(3600))
        #expect(try house.house.rows(of: "content_chunks") == 0)
        #expect(try house.house.rows(of: "storage_reservations") == 0)
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) == 0)
    }
}

extension TestContent {
    var asset: WireRecordAsset {
        .with { ($0.length, $0.root, $0.depth) = (UInt64(length), Data(root.bytes), UInt32(depth)) }
    }
}

extension RecordDevice {
    /// Where the assets of a record lie.
    ///
    /// - Parameter asset: Whose nodes they are, in a public database.
    func content(of record: String = "", nodesOf asset: TestContent? = nil) -> String {
        guard database == .public else { return container }
        let root = asset.map { "#" + $0.root.bytes.map { String(format: "%02x", $0) }.joined() } ?? ""
        return "\(container)/\(RecordLimits.defaultZone)\(root)/\(record)"
    }

    func missing(_ ids: [ChunkID], for record: String = "", in upload: [UInt8] = []) throws -> [Int] {
        try findMissing(ids, for: record, in: upload).missing.map { Int($0) }
    }

    private func findMissing(
        _ ids: [ChunkID], for record: String, in upload: [UInt8]
    ) throws -> WireFindMissingReply {
        var request = WireFindMissing()
        request.container = content(of: record)
        request.ids = ids.map { Data($0.bytes) }
        request.transferID = Data(upload)
        return try call("FindMissing", request, as: WireFindMissingReply.self)
    }

    func readNodes(_ asset: TestContent, of record: String = "") throws -> [[UInt8]] {
        var request = WireReadNodes()
        request.container = content(of: record)
        request.ids = asset.nodes.map { bytes in Data(bytes.withUnsafeBytes { ChunkID(hashing: $0) }.bytes) }
        return try call("ReadNodes", request, as: WireReadNodesReply.self).nodes.map { [UInt8]($0) }
    }

    private final class Stored { var count = 0 }
    private final class Fetched { var result: Result<BulkFrame, CloudError>? }

    private func run(until condition: () -> Bool) {
        _ = house.cloud.network.run(within: .seconds(120), until: condition)
    }

    /// Stores what is missing of an asset: chunks and nodes.
    ///
    /// - Returns: The upload.
    @discardableResult
    func store(
        _ asset: TestContent, for record: String = "", in upload: [UInt8]? = nil, nodes: Bool = true
    ) throws -> [UInt8] {
        let upload = upload ?? [UInt8](RecordDevice.version())
        (mover.service, mover.container) = (.records, content(of: record))
        let found = try findMissing(asset.ids, for: record, in: upload)
        let missing = found.missing.map { asset.chunks[Int($0)] }
        let room = found.storedBytes + UInt64(missing.reduce(0) { $0 + BulkLimits.counted($1.count) })
        let client = try mover.connect(BulkClient.Purpose(upload: upload, uploadBytes: room))
        #expect(store(missing, with: client) == missing.count)
        if missing.isEmpty {
            // Nodes are an upload's, also where it has no chunks.
            var open = WireOpenTransfer()
            (open.transferID, open.container) = (Data(upload), content(of: record))
            try call("OpenTransfer", open, as: WireOpenTransferReply.self)
        }
        guard nodes, !asset.nodes.isEmpty else { return upload }
        var request = WireStoreNodes()
        request.container = content(of: record, nodesOf: asset)
        request.transferID = Data(upload)
        request.nodes = asset.nodes.map { Data($0) }
        try call("StoreNodes", request, as: WireStoreNodesReply.self)
        return upload
    }

    func close(_ upload: [UInt8], for record: String = "") throws {
        var request = WireCloseTransfer()
        request.transferID = Data(upload)
        request.container = content(of: record)
        try call("CloseTransfer", request, as: WireCloseTransferReply.self)
    }

    func fetch(_ chunk: ChunkID, of record: String = "") throws -> [UInt8] {
        try fetch(chunk, by: connectBulk(for: record))
    }

    /// A client that stores assets of the record.
    func connectUpload(bytes: UInt64, for record: String = "") throws -> BulkClient {
        (mover.service, mover.container) = (.records, content(of: record))
        return try mover.connect(
            BulkClient.Purpose(upload: [UInt8](RecordDevice.version()), uploadBytes: bytes))
    }

    /// - Returns: How many were stored within two minutes.
    func store(_ chunks: [[UInt8]], with client: BulkClient) -> Int {
        let stored = Stored()
        for chunk in chunks {
            client.store(bytes: chunk.count) { target in
                target.copyBytes(from: chunk)
                return chunk.withUnsafeBytes { ChunkID(hashing: $0) }
            } then: { result in
                if case .success = result { stored.count += 1 }
            }
        }
        run(until: { stored.count == chunks.count })
        return stored.count
    }

    /// A client that fetches assets of the record.
    func connectBulk(for record: String = "") throws -> BulkClient {
        (mover.service, mover.container) = (.records, content(of: record))
        return try mover.connect(BulkClient.Purpose())
    }

    func fetch(_ chunk: ChunkID, by client: BulkClient) throws -> [UInt8] {
        let fetched = Fetched()
        client.fetch(chunk) { fetched.result = $0 }
        run(until: { fetched.result != nil || client.ended != nil })
        if let ended = client.ended { throw ended }
        return try #require(fetched.result).get().withContent { [UInt8]($0) }
    }

    /// Saves one record whose assets an upload has stored.
    @discardableResult
    func save(
        _ name: String, _ fields: [String: WireRecordField.OneOf_Value], base: Data = Data(),
        policy: WireSavePolicy = .ifServerRecordUnchanged, upload: [UInt8], for record: String = ""
    ) throws -> Data {
        let change = WireRecordChange.save(name, fields, base: base, policy: policy)
        let record = try #require(try modify([change], upload: upload).records.first)
        if record.hasFailure { throw CloudError(record.failure) }
        return change.save.version
    }

    /// One that was stored for no upload.
    @discardableResult
    func save(_ name: String, _ fields: [String: WireRecordField.OneOf_Value], for record: String) throws -> Data {
        try save(name, fields, upload: [], for: record)
    }
}

extension WireRecordChange {
    /// A save by which a field goes.
    fileprivate static func removing(
        _ field: String, of record: String, base: Data, policy: WireSavePolicy = .ifServerRecordUnchanged
    ) -> WireRecordChange {
        var change = WireRecordChange.save(record, base: base, policy: policy)
        change.save.fields = [.with { $0.name = field }]
        return change
    }
}

/// Expects a typed error.
private func expect(
    _ code: CloudError.Code, _ location: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) {
    do {
        try body()
        Issue.record("Nothing was thrown.", sourceLocation: location)
    } catch {
        #expect((error as? CloudError)?.code == code, "\(error)", sourceLocation: location)
    }
}
