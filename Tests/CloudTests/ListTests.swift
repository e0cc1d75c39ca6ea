import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosRecords
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What lists answer, page by page.
@Suite struct ListTests {
    @Test func aListOfWhatWasEndsBeforeItIsTooLarge() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let guests = try [Guest(of: cloud), Guest(of: cloud, seed: 2)]
        let value = String(repeating: "x", count: 900_000)
        for round in 0..<6 {
            let guest = guests[round % 2]
            let push = guest.push([guest.write("k", .string(value + "\(round)"))])
            #expect(try guest.ask(push).code == nil)
            cloud.network.run(for: .seconds(1))
        }
        var list = WireListKeyHistory()
        list.storeID = guests[0].session.accessToken.app.storeID
        var sizes: [Int] = []
        var values: Set<String> = []
        while true {
            let answer = try guests[0].ask(list)
            let reply = try answer.decoded(as: WireListKeyHistoryReply.self)
            sizes.append(try answer.result.get().count)
            values.formUnion(reply.entries.map(\.item.value.string))
            list.skip += UInt32(reply.entries.count)
            guard reply.more else { break }
            try #require(!reply.entries.isEmpty)
        }
        #expect(values.count == 5 && sizes.count == 3)
        // 2 MiB of values: far below a frame's 4 MiB.
        #expect(sizes.allSatisfy { $0 < 2 << 20 })
    }

    // MARK: Lists

    @Test func anAccountHasSoManyDevicesAndTheyAreListedInPages() throws {
        let cloud = try TestCloud(seed: 9)
        defer { cloud.close() }
        let first = try Guest(of: cloud)
        var newest = first
        for number in 1..<100 { newest = try Guest(of: cloud, seed: UInt64(number + 1)) }
        #expect(refusal { _ = try Guest(of: cloud, seed: 200) } == .limitExceeded)
        // A device that is known may come back, and one that goes makes room.
        try first.signInAgain()
        for number in 0..<180 {
            var revoke = WireRevokeDevice()
            revoke.deviceID = newest.device
            #expect(try first.ask(revoke, to: .identity).code == nil)
            newest = try Guest(of: cloud, seed: UInt64(1000 + number))
        }
        var devices: [String] = []
        var pages = 0
        while true {
            var list = WireListDevices()
            list.after = devices.last ?? ""
            let reply = try first.ask(list, to: .identity).decoded(as: WireListDevicesReply.self)
            devices += reply.devices.map(\.deviceID)
            pages += 1
            if !reply.more { break }
        }
        #expect(pages == 2 && devices.count == 280 && Set(devices).count == 280)
    }

    /// Whatever comes first: what fills a plan is what somebody looks for.
    @Test func theLargestOfWhatAnAccountUsesIsListedAndThatThereIsMore() throws {
        let folder = NSTemporaryDirectory() + "list-tests-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let store = try SegmentStore(folder: folder)
        let cloud = try TestCloud(
            seed: 17, contentServices: [.records: .init(store: store) { RecordsService($0) }])
        defer {
            cloud.close()
            try? FileManager.default.removeItem(atPath: folder)
        }
        let guest = try Guest(of: cloud)
        func use(_ bytes: Int64, by devices: Range<Int>) throws {
            let insert = SQL(
                "INSERT INTO storage_usage (owner_id, app, device, used) VALUES (?1, 'T.notes', ?2, ?3)")
            try cloud.storage(of: .records).write { transaction in
                for number in devices {
                    try transaction.execute(
                        insert,
                        [.text(guest.session.accountID), .text("dev_\(10_000 + number)"), .integer(bytes)])
                }
            }
        }
        func list() throws -> WireListUsageReply {
            try guest.ask(WireListUsage(), to: .records).decoded(as: WireListUsageReply.self)
        }
        try use(1, by: 0..<4096)
        #expect(try list().items.count == 4096 && !list().more)
        try use(1000, by: 4096..<5000)
        let reply = try list()
        #expect(reply.more && reply.items.count == 4096)
        #expect(reply.items.count { $0.usedBytes == 1000 } == 904)
        let sizes = reply.items.map(\.usedBytes)
        #expect(sizes == sizes.sorted(by: >))
    }

    @Test func appsAreListedInPages() throws {
        let cloud = try TestCloud(seed: 10)
        defer { cloud.close() }
        for number in 0..<300 {
            var app = WireApp()
            app.appID = "T.app-\(number)"
            try cloud.createApp(app)
        }
        var apps: [String] = []
        var pages = 0
        while true {
            var list = WireListApps()
            list.after = apps.last ?? ""
            let reply: WireListAppsReply = try cloud.operate("ListApps", list)
            apps += reply.apps.map(\.appID)
            pages += 1
            if !reply.more { break }
        }
        #expect(pages == 2 && apps.count == 301 && apps == apps.sorted())
    }
}
