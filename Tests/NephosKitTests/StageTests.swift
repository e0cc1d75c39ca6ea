import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Synchronization
import Testing

@testable import NephosKit

/// What is kept of a reading until all of it has come gives its room back, however the reading ends.
@Suite struct StageTests {
    /// How a reading of two pages goes on after the first.
    enum Ending: CaseIterable { case expires, cannotBeSaved, isBroughtIn }

    /// Whether the disk has room for nothing more.
    private final class Fullness: Sendable {
        let isFull = Mutex(false)
    }

    /// Pages of what this process keeps apart from its database, and the rows there.
    private func stage(of device: Device) throws -> (pages: Int, rows: Int) {
        try device.local.readBesideStage { database in
            let pages = try Int.fetchOne(database, sql: "PRAGMA temp.page_count") ?? 0
            return (pages, try Int.fetchOne(database, sql: "SELECT count(*) FROM temp.staged") ?? 0)
        }
    }

    /// About 4 MB.
    private static func firstPage() -> WireReadChangesReply {
        var page = WireReadChangesReply()
        page.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 50))
        page.complete = true
        page.items = (1...40).map { number in
            WireKeyValueItem(
                KeyValueItem(
                    key: ItemName("k\(number)"), value: .string(String(repeating: "x", count: 100_000)),
                    timestamp: HybridTimestamp(rawValue: 1 << 16), deviceID: DeviceID("dev_other"),
                    sequence: UInt64(number)))
        }
        page.place.start = page.token
        page.place.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 40))
        return page
    }

    @Test(arguments: Ending.allCases)
    func itsRoomIsFreeAgain(_ ending: Ending) throws {
        let folder = NSTemporaryDirectory() + "nephos-stage-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let disk = Fullness()
        let local = try LocalStore(path: folder + "/device.sqlite") { name in
            if name == "save", disk.isFull.withLock({ $0 }) { throw POSIXError(.ENOSPC) }
        }
        let device = try Device(local: local)
        var (requests, staged) = (0, (pages: 0, rows: 0))
        device.cloud.overrides["ReadChanges"] = { [unowned device] _ in
            requests += 1
            if requests == 1 { return .success(Frame(encoding: Self.firstPage())) }
            guard requests == 2 else { return .failure(CloudError(.serviceBusy, "Later.")) }
            staged = (try? stage(of: device)) ?? staged
            if ending == .expires { return .failure(CloudError(.changeTokenExpired, "Begin anew.")) }
            if ending == .cannotBeSaved { disk.isFull.withLock { $0 = true } }
            var last = Self.firstPage()
            last.clearPlace()
            last.changes = []
            return .success(Frame(encoding: last))
        }
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(staged.rows == 40 && staged.pages > 900)
        #expect(try stage(of: device).rows == 0)
        #expect(try stage(of: device).pages < 20)
        #expect(try device.store.dictionary().count == (ending == .isBroughtIn ? 40 : 0))
    }
}
