import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What is said of a home without room, and what waits in it.
@Suite(.serialized) struct HomeRoomTests {
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func theRoomForASignInIsTakenBeforeTheServerIsAsked() throws {
        let disk = try SmallDisk(megabytes: 4)
        defer { disk.remove() }
        let secrets = SecretFile(home: disk.folder)
        try secrets.save(DeviceSecrets(), as: "before")
        try disk.fill()
        let refused = #expect(throws: CloudError.self) { try secrets.reserveRoom() }
        #expect(refused?.code == .storageFailure && refused?.message == LocalFailure.full)
        try disk.empty()
        try secrets.reserveRoom()
        #expect(try files(in: disk.folder) == 2)
        secrets.releaseRoom()
        #expect(try files(in: disk.folder) == 1)
    }

    private func files(in folder: String) throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: folder).count { $0.hasSuffix(".secret.json") }
    }

    /// It knows nothing of the sign-in that the other is at.
    @Test func aProcessThatStartsLeavesTheRoomThatAnotherHasTaken() throws {
        let folder = NSTemporaryDirectory() + "nephos-home-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (first, second) = (SecretFile(home: folder), SecretFile(home: folder))
        try first.reserveRoom()
        #expect(!second.hasOthers(than: "kept"))
        second.removeOthers(than: "kept")
        try second.reserveRoom()
        second.releaseRoom()
        #expect(try files(in: folder) == 1)
        // What a crash has left goes once no sign-in can be at it any more.
        for name in try FileManager.default.contentsOfDirectory(atPath: folder) {
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -600)], ofItemAtPath: folder + "/" + name)
        }
        #expect(second.hasOthers(than: "kept"))
        second.removeOthers(than: "kept")
        #expect(try files(in: folder) == 0)
    }

    @Test func aSignOutNamesTheAppWhoseChangesWait() throws {
        let cloud = try TestCloud(seed: 54)
        defer { cloud.close() }
        try cloud.createApp("T.second", store: "T.own")
        let device = try cloud.addDevice()
        #expect(cloud.settle())
        let second = try #require(device.engine?.keyValue(AppID("T.second")))
        cloud.network.run(for: .seconds(10))
        cloud.crash(.keyValue)
        try second.set(1, forKey: "k")
        var result: Result<SignedOut, CloudError>?
        device.engine?.signOut { result = $0 }
        cloud.network.run(within: .seconds(10)) { result != nil }
        let refused = #expect(throws: CloudError.self) { try #require(result).get() }
        #expect(refused?.details["unsent"] == "1" && refused?.details["apps"] == "T.second: 1")
    }

    /// Nobody calls, nobody is there: whoever asks for the status hears of it all the same.
    @Test func whoWritesWhileTheServiceIsAwayIsToldSo() throws {
        let cloud = try TestCloud(seed: 55)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        try device.set("k", 1)
        cloud.network.run(for: .seconds(30))
        let status = try #require(try device.store?.status())
        #expect(status.problem != nil && status.pending.first?.blocker == .network, "\(status)")
        try cloud.start(.keyValue)
        #expect(cloud.settle(within: .seconds(120)))
        #expect(try device.store?.status().problem == nil)
    }
}
