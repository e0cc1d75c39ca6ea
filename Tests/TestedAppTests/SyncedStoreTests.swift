import NephosKit
import NephosTestKit
import Testing

/// Stores, containers and databases have the same calls.
@Suite struct SyncedStoreTests {
    /// What any app does with any of them.
    private func use(
        _ store: some SyncedStore, on cloud: TestCloud, _ session: Session, write: () async throws -> Void
    ) async throws {
        try await store.ready()
        #expect(try await store.conflicts.list().isEmpty)
        cloud.disconnect(session)
        // It has a copy by now.
        try await store.ready(timeout: .zero)
        try await write()
        let error = await #expect(throws: CloudError.self) { try await store.waitUntilSent(timeout: .seconds(5)) }
        #expect(error?.code == .deadlineExceeded)
        #expect("\(try await store.status())".contains("waiting: "))
        let waiting = Task { try await store.waitUntilCurrent(timeout: .seconds(100_000)) }
        waiting.cancel()
        let ended = await #expect(throws: CloudError.self) { try await waiting.value }
        #expect(ended?.code == .operationCancelled)
        cloud.connect(session)
        try await store.waitUntilSent()
        try await store.waitUntilCurrent()
        #expect(!"\(try await store.status())".contains("waiting: "))
    }

    @Test func allThreeAreUsedInTheSameWay() async throws {
        let cloud = try await TestCloud()
        try cloud.createApp(AppID("T.notes"), containers: ["T.notes.main"])
        let phone = try await cloud.openSession(account: "anna", device: "phone", app: AppID("T.notes"))
        let laptop = try await cloud.openSession(account: "anna", device: "laptop", app: AppID("T.notes"))
        let (store, container) = (try phone.keyValueStore(), try await phone.container())
        let database = try await phone.recordContainer().privateDatabase
        try await use(store, on: cloud, phone) { try store.set(1, forKey: "n") }
        try await use(container, on: cloud, phone) { try await container.put(Data([1]), at: "n") }
        try await use(database, on: cloud, phone) {
            try await database.zones.make("work")
            try await database.save(Record(RecordID("n", zone: "work"), type: "Note"))
        }
        let other = try await laptop.recordContainer().privateDatabase
        try await other.ready()
        #expect(try await other.recordCount() == 1)
    }
}
