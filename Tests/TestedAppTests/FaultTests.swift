import Foundation
import NephosKit
import NephosTestKit
import Testing

/// Faults do what their names and kinds say.
@Suite struct FaultTests {
    /// A cloud, and two devices of an account that have come to rest.
    private func cloud(seed: UInt64 = 1) async throws -> (cloud: TestCloud, phone: Session, laptop: Session) {
        let cloud = try await TestCloud(seed: seed)
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        for session in [phone, laptop] { try await session.keyValueStore().ready() }
        try await cloud.settle()
        return (cloud, phone, laptop)
    }

    @Test func aNameThatIsNotInTheListIsAnError() async throws {
        let cloud = try await TestCloud()
        for name in ["keyvalue.comit", "commit", "device", "", "phone.save"] {
            let error = #expect(throws: CloudError.self) { try cloud.faults.fail(name) }
            #expect(error?.code == .invalidArguments)
            #expect(throws: CloudError.self) { try cloud.faults.slow(name, by: .seconds(1)) }
            #expect(throws: CloudError.self) { try cloud.faults.leaveHalfDone(name) }
            #expect(throws: CloudError.self) { try cloud.faults.clear(name) }
            #expect(throws: CloudError.self) { try cloud.faults.count(name) }
        }
        #expect(throws: CloudError.self) { try FaultPoint(named: "keyvalue.commits") }
        #expect(Set(FaultPoint.all.map(\.name)).count == FaultPoint.all.count)
    }

    @Test func whatAPlaceDoesNotHaveIsAnError() async throws {
        let cloud = try await TestCloud()
        #expect(throws: CloudError.self) { try cloud.faults.leaveHalfDone("keyvalue.read") }
        #expect(throws: CloudError.self) { try cloud.faults.fail("keyvalue.commit", on: "phone") }
        #expect(throws: CloudError.self) { try cloud.faults.fail("keyvalue.commit", times: 0) }
        #expect(throws: CloudError.self) { try cloud.faults.slow("keyvalue.commit", by: .seconds(-1)) }
        for point in FaultPoint.all {
            if point.kinds.contains(.fails) { try cloud.faults.fail(point.name) }
            if point.kinds.contains(.slow) { try cloud.faults.slow(point.name, by: .seconds(1)) }
            if point.kinds.contains(.halfDone) { try cloud.faults.leaveHalfDone(point.name) }
        }
        try cloud.faults.clear()
    }

    @Test func aCommitFailsAsOftenAsAskedAndIsRepeated() async throws {
        let (cloud, phone, laptop) = try await cloud()
        try cloud.faults.fail("keyvalue.commit", times: 3)
        try phone.keyValueStore().set("x", forKey: "k")
        try await cloud.settle()
        #expect(try cloud.faults.count("keyvalue.commit") == 3)
        #expect(try laptop.keyValueStore().string(forKey: "k") == "x")
    }

    @Test func whatAlwaysFailsIsNeverSettled() async throws {
        let (cloud, phone, laptop) = try await cloud()
        try cloud.faults.fail("keyvalue.commit", times: .max)
        try phone.keyValueStore().set("x", forKey: "k")
        let error = await #expect(throws: NotSettled.self) { try await cloud.settle() }
        #expect(error?.left.contains { $0.contains("phone") && $0.contains("k") } == true)
        #expect(try laptop.keyValueStore()["k"] == nil)
        try cloud.faults.clear("keyvalue.commit")
        try await cloud.settle()
        #expect(try laptop.keyValueStore().string(forKey: "k") == "x")
    }

    @Test(arguments: ["keyvalue.commit", "keyvalue.receive", "keyvalue.send", "device.send", "device.receive"])
    func whatIsSlowTakesItsTime(_ name: String) async throws {
        let (cloud, phone, laptop) = try await cloud()
        let before = cloud.now
        try cloud.faults.slow(name, by: .seconds(4), on: name.hasPrefix("device.") ? "phone" : nil)
        try phone.keyValueStore().set("x", forKey: "k")
        try await cloud.settle()
        #expect(try cloud.faults.count(name) == 1)
        #expect(cloud.now.since(before) >= .seconds(4) && cloud.now.since(before) < .seconds(30))
        #expect(try laptop.keyValueStore().string(forKey: "k") == "x")
    }

    @Test(arguments: [
        "keyvalue.commit", "keyvalue.receive", "keyvalue.send", "keyvalue.publish", "notifications.send",
        "device.send", "device.receive",
    ])
    func whatIsLeftHalfDoneIsDoneOnce(_ name: String) async throws {
        let (cloud, phone, laptop) = try await cloud()
        let store = try phone.keyValueStore()
        try cloud.faults.leaveHalfDone(name)
        let before = cloud.now
        for number in 1...3 {
            try store.transaction { $0["n"] = .integer(Int64(number)) }
            try await cloud.settle()
        }
        #expect(try cloud.faults.count(name) == 1)
        // The service was away meanwhile.
        if name == "keyvalue.commit" { #expect(cloud.now.since(before) >= .seconds(1)) }
        #expect(try laptop.keyValueStore().integer(forKey: "n") == 3)
        #expect(try await laptop.keyValueStore().verify().agrees)
    }

    @Test func nobodyHearsWhatIsNotPublishedAndEverybodyHasItInTheEnd() async throws {
        let (cloud, phone, laptop) = try await cloud()
        for name in ["keyvalue.publish", "notifications.send"] {
            try cloud.faults.fail(name, times: 5)
            try phone.keyValueStore().set(.string(name), forKey: "k")
            try await cloud.settle()
            #expect(try laptop.keyValueStore().string(forKey: "k") == name)
        }
    }

    @Test func aDiskThatIsFullRefusesTheWriteAndStoresNothing() async throws {
        let (cloud, phone, laptop) = try await cloud()
        let store = try phone.keyValueStore()
        // Another device's disk is not this one's.
        try cloud.faults.fail("device.save", on: "laptop", times: .max)
        try store.set("x", forKey: "k")
        try cloud.faults.clear()
        try cloud.faults.fail("device.save", on: "phone", times: 2)
        for _ in 0..<2 {
            let error = #expect(throws: CloudError.self) { try store.set("y", forKey: "k") }
            #expect(error?.code == .storageFailure && error?.message.contains("full") == true)
        }
        #expect(store.string(forKey: "k") == "x")
        try store.set("z", forKey: "k")
        try cloud.faults.fail("device.read", on: "phone")
        #expect(throws: CloudError.self) { try store.read("k") }
        try await cloud.settle()
        #expect(try laptop.keyValueStore().string(forKey: "k") == "z")
    }

    @Test func aSlowDiskHoldsUpWhoeverWrites() async throws {
        let (cloud, phone, laptop) = try await cloud()
        let store = try phone.keyValueStore()
        try cloud.faults.slow("device.save", by: .seconds(3), on: "phone")
        let before = cloud.now
        try store.set("x", forKey: "k")
        #expect(cloud.now.since(before) >= .seconds(3))
        // On the device's own thread, where it takes in what others write.
        try cloud.faults.slow("device.save", by: .seconds(20), on: "laptop")
        try store.set("y", forKey: "k")
        try await phone.keyValueStore().waitUntilSent()
        try await cloud.settle()
        #expect(try cloud.faults.count("device.save") == 2)
        #expect(cloud.now.since(before) >= .seconds(20))
        #expect(try laptop.keyValueStore().string(forKey: "k") == "y")
    }

    @Test(arguments: [false, true])
    func aSecretThatCannotBeSavedLeavesTheSignInBefore(isHalfDone: Bool) async throws {
        let (cloud, phone, _) = try await cloud()
        try cloud.createAccount("bert")
        if isHalfDone {
            try cloud.faults.leaveHalfDone("device.secrets", on: "phone")
        } else {
            try cloud.faults.fail("device.secrets", on: "phone")
        }
        let error = await #expect(throws: CloudError.self) {
            try await phone.signIn(
                connection: cloud.connectionString, account: "bert", password: TestCloud.password)
        }
        #expect(error?.code == .storageFailure)
        #expect(try phone.account?.accountName == "anna")
        let parts = try FileManager.default.contentsOfDirectory(atPath: phone.home.path).filter { $0.hasSuffix(".tmp") }
        #expect(parts.count == (isHalfDone ? 1 : 0))
        try await phone.signIn(connection: cloud.connectionString, account: "bert", password: TestCloud.password)
        #expect(try phone.account?.accountName == "bert")
        try await cloud.settle()
    }

    @Test func aSignInThatEndsHalfWayIsNoneAtAll() async throws {
        let (cloud, phone, laptop) = try await cloud()
        try cloud.createAccount("bert")
        for step in ["sign-in.commit", "switch.secrets", "switch.session"] {
            try cloud.faults.fail("device." + step, on: "phone")
            await #expect(throws: CloudError.self) {
                try await phone.signIn(
                    connection: cloud.connectionString, account: "bert", password: TestCloud.password)
            }
            #expect(try phone.account?.accountName == "anna")
        }
        try phone.keyValueStore().set("anna's", forKey: "k")
        try await cloud.settle()
        #expect(try laptop.keyValueStore().string(forKey: "k") == "anna's")
    }
}
