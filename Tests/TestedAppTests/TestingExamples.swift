import NephosKit
import NephosTestKit
import Testing

// The examples of docs/testing.md, in its order. A test compares the two, character by character.

@Test func changeReachesTheOtherDevice() async throws {
    let cloud = try await TestCloud()
    let phone = try await cloud.openSession(account: "anna", device: "phone")
    let laptop = try await cloud.openSession(account: "anna", device: "laptop")
    try phone.keyValueStore().set("dark", forKey: "theme")
    try await cloud.settle()
    #expect(try laptop.keyValueStore().string(forKey: "theme") == "dark")
}

func openStore(connection: String, password: String) async throws -> KeyValueStore {
    let session = try await Session.open()
    if try session.account == nil {
        try await session.signIn(connection: connection, account: "anna", password: password)
    }
    let store = try session.keyValueStore()
    try await store.ready()
    return store
}

@Test func appSignsIn() async throws {
    let cloud = try await TestCloud()
    try cloud.createAccount("anna")
    let phone = try await cloud.onDevice("phone") {
        try await openStore(connection: cloud.connectionString, password: TestCloud.password)
    }
    let laptop = try await cloud.openSession(account: "anna", device: "laptop").keyValueStore()
    try phone.set(1, forKey: "starts")
    try await cloud.settle()
    #expect(laptop.integer(forKey: "starts") == 1)
}

@Test func offlineWriteIsSentAfterRestart() async throws {
    let cloud = try await TestCloud()
    let laptop = try await cloud.openSession(account: "anna", device: "laptop")
    var phone = try await cloud.openSession(account: "anna", device: "phone")
    cloud.disconnect(phone)
    try phone.keyValueStore().set("kept", forKey: "note")
    let left = await #expect(throws: NotSettled.self) { try await cloud.settle(within: .seconds(60)) }
    #expect(left?.description.contains("phone") == true)

    phone.close()
    phone = try await cloud.openSession(account: "anna", device: "phone")
    cloud.connect(phone)
    let store = try phone.keyValueStore()
    try await cloud.settle()
    #expect(store.string(forKey: "note") == "kept")
    #expect(try laptop.keyValueStore().string(forKey: "note") == "kept")
}

@Test func listenerReceivesChange() async throws {
    let cloud = try await TestCloud()
    let phone = try await cloud.openSession(account: "anna", device: "phone").keyValueStore()
    let laptop = try await cloud.openSession(account: "anna", device: "laptop").keyValueStore()
    try await laptop.ready()
    var changes = laptop.changes.makeAsyncIterator()
    try phone.set("dark", forKey: "theme")
    try await cloud.settle()
    let change = try await changes.next()
    #expect(change?.changedKeys == ["theme"])
}

@Test func filesAndRecordsSettle() async throws {
    let cloud = try await TestCloud()
    try cloud.createApp(AppID("T.notes"), containers: ["T.notes.main"])
    let phone = try await cloud.openSession(account: "anna", device: "phone", app: AppID("T.notes"))
    let laptop = try await cloud.openSession(account: "anna", device: "laptop", app: AppID("T.notes"))
    let (files, records) = try await (phone.container(), phone.recordContainer().privateDatabase)
    let (otherFiles, otherRecords) = try await (laptop.container(), laptop.recordContainer().privateDatabase)
    try await otherRecords.ready()
    try await files.put(Data("Dear Bert".utf8), at: "letter.txt")
    try await records.save(Record(RecordID("a"), type: "Note", fields: ["title": "one"]))
    try await cloud.settle()
    #expect(try await otherFiles.read("letter.txt") == Data("Dear Bert".utf8))
    #expect(try await otherRecords.record(RecordID("a"))?["title"] == "one")
}

@Test func fullDiskIsReported() async throws {
    let cloud = try await TestCloud()
    let store = try await cloud.openSession(account: "anna", device: "phone").keyValueStore()
    try cloud.faults.fail("device.save", on: "phone")
    let error = #expect(throws: CloudError.self) { try store.set("dark", forKey: "theme") }
    #expect(error?.code == .storageFailure && store["theme"] == nil)
    try store.set("dark", forKey: "theme")
}

@Test func crashBeforeReplyWritesOnce() async throws {
    let cloud = try await TestCloud()
    let phone = try await cloud.openSession(account: "anna", device: "phone").keyValueStore()
    let laptop = try await cloud.openSession(account: "anna", device: "laptop").keyValueStore()
    try await cloud.settle()
    try cloud.faults.leaveHalfDone("keyvalue.commit")
    try phone.set("dark", forKey: "theme")
    try await cloud.settle()
    #expect(try cloud.faults.count("keyvalue.commit") == 1)
    #expect(laptop.string(forKey: "theme") == "dark")
}

@Test(arguments: 1...10 as ClosedRange<UInt64>)
func allDevicesConverge(seed: UInt64) async throws {
    let cloud = try await TestCloud(seed: seed, network: .bad)
    var stores: [KeyValueStore] = []
    for _ in 0..<3 { stores.append(try await cloud.openSession(account: "anna").keyValueStore()) }
    for round in 0..<10 {
        try stores[round % 3].set(round, forKey: "round")
        await cloud.advance(by: .milliseconds(100))
    }
    try await cloud.settle()
    #expect(stores.allSatisfy { $0.integer(forKey: "round") == 9 })
}
