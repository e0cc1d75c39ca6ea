import Foundation
import NephosBulk
import NephosChunks
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// In a public database accounts store beside one another, and what somebody may read can end: who knows a hash gets at
/// nothing by it that he may not read now.
@Suite struct PublicAssetRightsTests {
    private let house: PublicHouse
    private let ann: RecordDevice
    private let bert: RecordDevice
    private let photo = TestContent(seed: 1, chunks: [100_000, 70_000])
    private let small = TestContent(seed: 3, chunks: [50_000])

    init() throws {
        house = try PublicHouse()
        ann = try house.device()
        bert = try house.device(PublicHouse.other)
        try house.setRoles(of: "Secret", everyone: .none)
    }

    private func save(
        _ name: String, _ content: TestContent, type: String = "Note", base: Data = Data(), by device: RecordDevice
    ) throws {
        let upload = try device.store(content, for: name)
        let change = WireRecordChange.save(name, ["photo": .asset(content.asset)], type: type, base: base)
        let record = try #require(try device.modify([change], upload: upload).records.first)
        #expect(!record.hasFailure, "\(record)")
        try device.close(upload, for: name)
    }

    /// They lie in two partitions, whose rows count apart.
    @Test func whatAnAccountWritesADayIsBoundedInEachDatabase() throws {
        var configuration = Transfers.Configuration()
        (configuration.writtenADayPlans, configuration.writtenADayLeast) = (0, 400_000)
        let house = try PublicHouse(configuration: configuration)
        let own = try house.house.device()
        let open = try own.connectUpload(bytes: 1 << 20)
        #expect(own.store([TestContent(seed: 1, chunks: [300_000]).chunks[0]], with: open) == 1)
        // What is written there is nothing to the other, and does not end what is known of that.
        let there = own.ofPublic()
        let other = try there.connectUpload(bytes: 1 << 20, for: "sea")
        #expect(there.store([TestContent(seed: 2, chunks: [20_000]).chunks[0]], with: other) == 1)
        #expect(own.store([TestContent(seed: 3, chunks: [300_000]).chunks[0]], with: open) == 0)
    }

    /// A plan of 4 MB for the app, of which an account may add 2 MB within a day.
    private func limitAppPlan() throws {
        try house.cloud.savePlan("small", bytes: 4_000_000)
        var plan = WireSetPlan()
        (plan.appID, plan.planID) = (RecordHouse.app, "small")
        try house.cloud.operate("SetPlan", plan, as: WireSetPlanReply.self)
        house.cloud.network.run(for: .seconds(10))
    }

    /// Whether an account with so much left to add today may store the chunk, and what it may add after that.
    @Test(arguments: [false, true])
    func aHiddenRecordsContentIsAnsweredAsIfItWereNotThere(isThere: Bool) throws {
        try limitAppPlan()
        let hidden = TestContent(seed: 7, chunks: [100_000])
        if isThere { try save("sea", hidden, type: "Secret", by: ann) }
        for number in 0..<18 {
            try bert.save("bert-\(number)", ["text": .string(String(repeating: "x", count: 100_000))])
        }
        // There is room for one of them: it is written again, and so leaves none for another.
        let upload = try bert.connectUpload(bytes: 180_000, for: "hill")
        #expect(bert.store(hidden.chunks, with: upload) == 1)
        // Nothing is left: refused, there or not, and no further upload has room.
        #expect(bert.store(TestContent(seed: 9, chunks: [110_000]).chunks, with: upload) == 0)
        let refusal = #expect(throws: CloudError.self) { try openUpload(200_000, for: "lake") }
        #expect(refusal?.code == .requestRateLimited)
    }

    private func openUpload(
        _ bytes: UInt64, for record: String, _ upload: Data = RecordDevice.version()
    ) throws {
        var open = WireOpenTransfer()
        (open.container, open.transferID) = (bert.content(of: record), upload)
        open.uploadBytes = bytes
        try bert.call("OpenTransfer", open, as: WireOpenTransferReply.self)
    }

    /// Reserved and saved bytes count together on the account's part of the app's plan, in either order.
    @Test(arguments: [false, true]) func whatIsReservedIsOfTheAccountsPart(isReservedFirst: Bool) throws {
        try limitAppPlan()
        func save(_ name: String) throws {
            try bert.save(name, ["text": .string(String(repeating: "x", count: 100_000))])
        }
        if isReservedFirst {
            let upload = RecordDevice.version()
            try openUpload(1_500_000, for: "hill", upload)
            for number in 0..<4 { try save("bert-\(number)") }
            let refusal = #expect(throws: CloudError.self) { try save("bert-4") }
            #expect(refusal?.code == .requestRateLimited)
            // The upload goes on with what it has, and gets no more.
            try openUpload(1_500_000, for: "hill", upload)
            #expect(throws: CloudError.self) { try openUpload(1_600_000, for: "hill", upload) }
        } else {
            for number in 0..<10 { try save("bert-\(number)") }
            let refusal = #expect(throws: CloudError.self) { try openUpload(1_500_000, for: "hill") }
            #expect(refusal?.code == .requestRateLimited)
            // The refused request has reserved nothing.
            try openUpload(900_000, for: "hill")
        }
        try ann.save("ann", ["text": .string(String(repeating: "x", count: 900_000))])
    }

    @Test func anAccountAddsAPartOfTheAppsPlanWithinADay() throws {
        try limitAppPlan()
        var saved = 0
        func save(_ name: String, by device: RecordDevice) -> CloudError? {
            do {
                try device.save(name, ["text": .string(String(repeating: "x", count: 100_000))])
                return nil
            } catch { return error as? CloudError }
        }
        var refusal: CloudError?
        while refusal == nil, saved < 100 {
            refusal = save("bert-\(saved)", by: bert)
            if refusal == nil { saved += 1 }
        }
        #expect(saved == 19)
        #expect(refusal?.code == .requestRateLimited && refusal?.details["budget"] == "public database")
        // By assets as little; deletions go on, and so do others.
        let refused = #expect(throws: CloudError.self) { try openUpload(500_000, for: "hill") }
        #expect(refused?.code == .requestRateLimited)
        try bert.delete("bert-0")
        #expect(save("ann", by: ann) == nil)
        let wait = try #require(refusal?.retryAfter)
        #expect(wait > .seconds(60) && wait < .seconds(6 * 3600))
        house.cloud.network.run(for: wait)
        let late = try house.device(PublicHouse.other)
        #expect(save("late", by: late) == nil)
    }

    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    private func expectNothingIsLeft() throws {
        for table in ["chunks", "uses", "nodes", "holds", "sums", "endings"].map({ "content_" + $0 }) + [
            "record_assets"
        ] {
            #expect(try house.house.rows(of: table) == 0, "\(table)")
        }
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) < 1000)
    }

    private func settle() { house.cloud.network.run(for: .seconds(130)) }

    /// What was open stays open no longer than it is allowed: for accounts and for those without.
    @Test func aTicketEndsWhenRolesTakeTheReadingAway() throws {
        try save("sea", photo, by: ann)
        let stranger = try house.stranger()
        let readers = [try bert.connectBulk(for: "sea"), try stranger.connectBulk(for: "sea")]
        for (reader, device) in zip(readers, [bert, stranger]) {
            #expect(try device.fetch(photo.ids[0], by: reader) == photo.chunks[0])
        }
        try house.setRoles(of: "Note", everyone: .none)
        for (reader, device) in zip(readers, [bert, stranger]) {
            // It asks for another, and gets none.
            #expect(code { _ = try device.fetch(photo.ids[0], by: reader) } == .unknownItem)
            #expect(code { _ = try device.fetch(photo.ids[0], of: "sea") } == .unknownItem)
        }
        // Who made it reads on.
        #expect(try ann.fetch(photo.ids[0], of: "sea") == photo.chunks[0])
    }

    @Test func aTicketEndsWhenItsAdministratorIsNoneAnyMore() throws {
        let change = WireRecordChange.save("sea", ["photo": .asset(small.asset)], type: "Secret")
        #expect(
            try ann.modify([change], upload: try ann.store(small, for: "sea")).records.allSatisfy { !$0.hasFailure })
        let administrator = try house.device(PublicHouse.administrator)
        let reader = try administrator.connectBulk(for: "sea")
        #expect(try administrator.fetch(small.ids[0], by: reader) == small.chunks[0])
        var request = WireSaveContainer()
        request.definition.containerID = RecordHouse.container
        request.administrators.accountNames = [PublicHouse.other]
        try house.cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
        house.cloud.network.run(for: .seconds(5))
        #expect(code { _ = try administrator.fetch(small.ids[0], by: reader) } == .unknownItem)
    }

    /// A ticket is for what the record has at the moment: what comes later as well, and nothing that it has no more.
    @Test func aTicketIsForWhatTheRecordHasNow() throws {
        try save("sea", photo, by: ann)
        let reader = try bert.connectBulk(for: "sea")
        #expect(try bert.fetch(photo.ids[1], by: reader) == photo.chunks[1])
        let version = try #require(ann.list()["sea"]).version
        try save("sea", small, base: version, by: ann)
        #expect(try bert.fetch(small.ids[0], by: reader) == small.chunks[0])
        #expect(code { _ = try bert.fetch(photo.ids[1], by: reader) } == .unknownItem)
    }

    /// Neither by a ticket of before nor by the hash, from the first moment on.
    @Test func whoMayNotReadTheRecordThatWasMadeAnewHasNothingOfIt() throws {
        try save("sea", small, by: ann)
        let reader = try bert.connectBulk(for: "sea")
        #expect(try bert.fetch(small.ids[0], by: reader) == small.chunks[0])
        try ann.delete("sea")
        #expect(code { _ = try bert.fetch(small.ids[0], by: reader) } == .unknownItem)
        try save("sea", photo, type: "Secret", by: ann)
        for id in photo.ids + small.ids { #expect(code { _ = try bert.fetch(id, by: reader) } == .unknownItem) }
        settle()
        for id in photo.ids { #expect(code { _ = try bert.fetch(id, by: reader) } == .unknownItem) }
        #expect(try ann.fetch(photo.ids[0], of: "sea") == photo.chunks[0])
    }

    /// Before what rests on it was removed in the background, and while it is.
    @Test func whoTakesTheNameOfASecretHasNothingOfIt() throws {
        try save("sea", photo, type: "Secret", by: ann)
        try save("hill", small, type: "Secret", by: ann)
        for name in ["sea", "hill"] { try ann.delete(name) }
        for wait in [0, 1, 20, 45, 130] {
            house.cloud.network.run(for: .seconds(wait))
            for (name, content) in [("sea", photo), ("hill", small)] {
                #expect(try bert.missing(content.ids, for: name).count == content.ids.count)
                #expect(code { try bert.save(name, ["photo": .asset(content.asset)], for: name) } == .assetNotAvailable)
            }
            // A record of one's own opens nothing either.
            let own = TestContent(seed: UInt64(10 + wait), chunks: [30_000])
            let name = "sea"
            try save(name, own, by: bert)
            let reader = try bert.connectBulk(for: name)
            #expect(try bert.fetch(own.ids[0], by: reader) == own.chunks[0])
            for id in photo.ids { #expect(code { _ = try bert.fetch(id, by: reader) } == .unknownItem) }
            #expect(code { _ = try bert.readNodes(photo, of: name) } == .unknownItem)
            try bert.delete(name)
        }
        settle()
        #expect(try house.house.rows(of: "content_chunks") == 0)
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) < 1000)
    }

    /// What somebody has stored ahead and not saved yet nobody else finds, takes or reads: of a record that there is not
    /// yet, and of one that both may change.
    @Test(arguments: [false, true]) func nobodyTakesWhatAnotherHasNotSavedYet(isThere: Bool) throws {
        if isThere {
            try house.setRoles(of: "Note", signedIn: .reading(create: true, write: true))
            try save("sea", small, by: bert)
        }
        let base = isThere ? try #require(bert.list()["sea"]).version : Data()
        let upload = try ann.store(photo, for: "sea")
        let nodes = photo.nodes.map { bytes in bytes.withUnsafeBytes { ChunkID(hashing: $0) } }
        for named in [[], upload, [UInt8](RecordDevice.version())] {
            #expect(try bert.missing(photo.ids + nodes, for: "sea", in: named).count == photo.ids.count + nodes.count)
            #expect(
                code { try bert.save("sea", ["photo": .asset(photo.asset)], base: base, upload: named, for: "sea") }
                    == .assetNotAvailable)
            let chunk = WireRecordAsset.with { ($0.length, $0.root) = (100_000, Data(photo.ids[0].bytes)) }
            #expect(
                code { try bert.save("sea", ["photo": .asset(chunk)], base: base, upload: named, for: "sea") }
                    == .assetNotAvailable)
        }
        // Nor by nodes of his own that name its chunks.
        var request = WireStoreNodes()
        request.container = bert.content(of: "sea", nodesOf: photo)
        request.transferID = Data(try bert.store(TestContent(seed: 9, chunks: [20_000]), for: "sea"))
        request.nodes = photo.nodes.map { Data($0) }
        #expect(code { try bert.call("StoreNodes", request, as: WireStoreNodesReply.self) } == .unknownItem)
        #expect(code { _ = try bert.readNodes(photo, of: "sea") } == .unknownItem)
        // Whose it is saves it.
        try ann.save("sea", ["photo": .asset(photo.asset)], base: base, upload: upload, for: "sea")
        #expect(try bert.fetch(photo.ids[1], of: "sea") == photo.chunks[1])
        #expect(try bert.readNodes(photo, of: "sea") == photo.nodes)
    }

    /// Of what the record has nothing is sent again, whoever has brought it, and nothing counts twice.
    @Test func whatTheRecordHasIsThereForWhoChangesIt() throws {
        try house.setRoles(of: "Note", signedIn: .reading(create: true, write: true))
        try save("sea", photo, by: ann)
        let used = try house.house.used(of: Owner(AppID(RecordHouse.app)))
        let longer = TestContent(seed: 1, chunks: [100_000, 70_000, 40_000])
        #expect(longer.ids.prefix(2) == photo.ids.prefix(2))
        #expect(try bert.missing(longer.ids, for: "sea") == [2])
        let version = try #require(bert.list()["sea"]).version
        let upload = try bert.store(longer, for: "sea")
        // The one of both, and a chunk of it alone, which needs no upload.
        let chunk = WireRecordAsset.with { ($0.length, $0.root) = (70_000, Data(photo.ids[1].bytes)) }
        let change = WireRecordChange.save(
            "sea", ["photo": .asset(longer.asset), "part": .asset(chunk)], base: version)
        #expect(try bert.modify([change], upload: upload).records.allSatisfy { !$0.hasFailure })
        try bert.close(upload, for: "sea")
        settle()
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) < used + 45_000)
        #expect(try house.house.rows(of: "content_chunks") == 3)
        for (id, bytes) in zip(longer.ids, longer.chunks) { #expect(try ann.fetch(id, of: "sea") == bytes) }
        #expect(try ann.readNodes(longer, of: "sea") == longer.nodes)
        try ann.delete("sea")
        settle()
        try expectNothingIsLeft()
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) < 1000)
    }

    /// Nor by a record whose name is made from what only the service makes names from.
    @Test func noNameOfARecordIsThePlaceOfAnothersContent() throws {
        let upload = try ann.store(photo, for: "sea")
        let said = [UInt8](ann.mover.account.rawValue.utf8) + [0] + upload
        let hash = said.withUnsafeBytes { ChunkID(hashing: $0) }.bytes.prefix(16)
        let hex = hash.map { String(format: "%02x", $0) }.joined()
        for name in ["sea/\(hex)", "#\(hex)", "sea#\(hex)"] {
            #expect(try bert.missing(photo.ids, for: name) == [0, 1])
            #expect(code { try bert.save(name, ["photo": .asset(photo.asset)], for: name) } == .assetNotAvailable)
        }
        for place in ["T.one#\(hex)", "T.one/_defaultZone#\(hex)/sea", "T.one/_defaultZone#/sea", "T.one/#/sea"] {
            var request = WireOpenTransfer()
            request.container = place
            #expect(code { try bert.call("OpenTransfer", request, as: WireOpenTransferReply.self) } != nil, "\(place)")
        }
    }

    /// However others call their records, and whatever they have in them.
    @Test func whatARecordHasIsFoundBesideAnyNumberOfOthers() throws {
        let photos = (0..<8).map { TestContent(seed: UInt64(100 + $0), chunks: [5000]) }
        var fields: [String: WireRecordField.OneOf_Value] = [:]
        var version = Data()
        for (number, photo) in photos.enumerated() {
            let upload = try ann.store(photo, for: "album")
            fields["p\(number)"] = .asset(photo.asset)
            version = try ann.save("album", fields, base: version, upload: upload, for: "album")
        }
        let upload = try bert.store(photos[0], for: "album/0")
        for photo in photos.dropFirst() { try bert.store(photo, for: "album/0", in: upload) }
        for number in 0..<120 {
            let name = "album/\(number)"
            for photo in photos where number > 0 { try bert.store(photo, for: name, in: upload) }
            try bert.save(name, fields, upload: upload, for: name)
        }
        for photo in photos { #expect(try bert.fetch(photo.ids[0], of: "album") == photo.chunks[0]) }
        #expect(try ann.missing(photos.map { $0.ids[0] }, for: "album").isEmpty)
    }

    /// Of an upload that has stored more than was saved, and of a save that brought more than is there still.
    @Test func whoReadsAnAssetHasNothingBesides() throws {
        let tree = TestContent(seed: 5, chunks: [30_000, 40_000])
        try house.setRoles(of: "Note", signedIn: .reading(create: true, write: true))
        let upload = try ann.store(small, for: "sea")
        try ann.store(tree, for: "sea", in: upload)
        let version = try ann.save("sea", ["photo": .asset(small.asset)], upload: upload, for: "sea")
        let reader = try bert.connectBulk(for: "sea")
        #expect(try bert.fetch(small.ids[0], by: reader) == small.chunks[0])
        func expectNothing() throws {
            for id in tree.ids { #expect(code { _ = try bert.fetch(id, by: reader) } == .unknownItem) }
            #expect(try bert.missing(tree.ids, for: "sea") == [0, 1])
            #expect(code { _ = try bert.readNodes(tree, of: "sea") } == .unknownItem)
        }
        try expectNothing()
        let next = try ann.save(
            "sea", ["photo": .asset(small.asset), "more": .asset(tree.asset)], base: version, upload: upload, for: "sea"
        )
        #expect(try bert.fetch(tree.ids[0], by: reader) == tree.chunks[0])
        let change = WireRecordChange.save("sea", ["more": .asset(small.asset)], base: next)
        #expect(try ann.modify([change]).records.allSatisfy { !$0.hasFailure })
        try expectNothing()
    }

    /// Also where the same upload brought something to the record that was called so before.
    @Test func anUploadThatIsOpenStillShowsNothingOfTheRecordBefore() throws {
        let upload = try ann.store(photo, for: "sea")
        // Something that no record takes: else it would be over with the first.
        try ann.store(TestContent(seed: 9, chunks: [20_000]), for: "sea", in: upload)
        var secret = WireRecordChange.save("sea", ["photo": .asset(photo.asset)], type: "Secret")
        #expect(try ann.modify([secret], upload: upload).records.allSatisfy { !$0.hasFailure })
        try ann.delete("sea")
        try ann.store(small, for: "sea", in: upload)
        secret = .save("sea", ["photo": .asset(small.asset)])
        #expect(try ann.modify([secret], upload: upload).records.allSatisfy { !$0.hasFailure })
        let reader = try bert.connectBulk(for: "sea")
        #expect(try bert.fetch(small.ids[0], by: reader) == small.chunks[0])
        for id in photo.ids { #expect(code { _ = try bert.fetch(id, by: reader) } == .unknownItem) }
        try ann.close(upload, for: "sea")
        try ann.delete("sea")
        settle()
        try expectNothingIsLeft()
    }

    /// One that closes what it opens is let in, though what is closed is removed later.
    @Test func whoClosesEveryUploadIsNotKeptWaiting() throws {
        for _ in 0..<24 {
            var open = WireOpenTransfer()
            (open.container, open.transferID) = (ann.content(of: "sea"), RecordDevice.version())
            try ann.call("OpenTransfer", open, as: WireOpenTransferReply.self)
            try ann.close([UInt8](open.transferID), for: "sea")
        }
    }

    /// Whoever follows the database hears what has changed, and not on which device.
    @Test func readersAreToldOfNobodysDevice() throws {
        let listener = try house.cloud.makeListener(to: .records)
        try ann.save("sea", ["x": .integer(1)], for: "sea")
        house.cloud.network.run(for: .seconds(1))
        let told = listener.events.map(\.notification).filter { Owner(rawValue: $0.owner).isApp }
        #expect(!told.isEmpty)
        #expect(told.allSatisfy { $0.deviceID.isEmpty })
    }
}
