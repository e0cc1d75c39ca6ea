import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// A container's public database, as an app uses it: asked on the server, or copied; saved by the same ways.
@Suite struct PublicRecordsTests {
    private func database(_ device: RecordCloud.Device) async throws -> RecordDatabase {
        try await device.session.recordContainer(app: RecordCloud.app).publicDatabase
    }

    private func other(of cloud: RecordCloud) async throws -> RecordCloud.Device {
        _ = try cloud.simulation.use { try $0.createAccount("bert") }
        return try await cloud.open(account: "bert")
    }

    private func settle(_ database: RecordDatabase) async throws {
        try await database.waitUntilSent(timeout: .seconds(60))
        try await database.waitUntilCurrent(timeout: .seconds(60))
    }

    private func makeAppToken(_ cloud: RecordCloud) throws -> WireCreateAppTokenReply {
        try cloud.simulation.use { cloud in
            var request = WireCreateAppToken()
            request.appID = RecordCloud.app.rawValue
            return try cloud.operate("CreateAppToken", request)
        }
    }

    @Test func whatOneAccountSavesTheOtherReadsOnTheServer() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await other(of: cloud))
            let (here, there) = (try await database(one), try await database(two))
            try await here.save(Record("a", ["title": "Sea"]))
            try await here.waitUntilSent(timeout: .seconds(60))
            #expect(try await there.record(RecordID("a"))?["title"] == "Sea")
            let query = RecordQuery(type: "Note", try QueryPredicate(parsing: "title ==[c] 'sea'"))
            #expect(try await there.records(matching: query).map(\.id.name) == ["a"])
            // Nothing of it is here, nor in the account's own.
            #expect(try await !there.keepsCopy())
            #expect(try await two.database.record(RecordID("a")) == nil)
            #expect(try await one.database.record(RecordID("a")) == nil)
            let error = await #expect(throws: CloudError.self) { try await there.zones.make("work") }
            #expect(error?.code == .invalidArguments)
        }
    }

    /// What is not kept here is deleted where it is.
    @Test(arguments: [RecordSavePolicy.ifServerRecordUnchanged, .allKeys]) func aRecordIsDeletedWithoutACopy(
        _ policy: RecordSavePolicy
    ) async throws {
        try await withRecords { cloud in
            let (here, other) = (try await database(cloud.open()), try await database(cloud.open()))
            try await here.save(Record("a", ["title": "Sea"]))
            try await here.waitUntilSent(timeout: .seconds(60))
            try await other.save(Record("b", ["title": "Hill"]))
            try await other.waitUntilSent(timeout: .seconds(60))
            _ = try await other.modify(saving: [], deleting: [RecordID("a")], policy: policy)
            try await other.waitUntilSent(timeout: .seconds(60))
            #expect(try await here.record(RecordID("a")) == nil)
        }
    }

    /// Where no copy is kept only who has read the record knows what it was.
    @Test func whatOthersHaveSavedSinceItWasReadIsNotDeletedWithIt() async throws {
        try await withRecords { cloud in
            let devices = [try await cloud.open(), try await cloud.open()]
            let (here, there) = (try await database(devices[0]), try await database(devices[1]))
            try await here.save(Record("a", ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))
            let read = try #require(try await there.record(RecordID("a")))
            var newer = try #require(try await here.record(RecordID("a")))
            newer["n"] = 2
            try await here.save(newer)
            try await here.waitUntilSent(timeout: .seconds(60))
            try await there.delete(read)
            try await there.waitUntilSent(timeout: .seconds(60))
            let conflict = try #require(try await there.conflicts.list().first)
            #expect(conflict.ancestor?["n"] == 1 && conflict.server?["n"] == 2 && conflict.client == nil)
            #expect(try await here.record(RecordID("a"))?["n"] == 2)
            try await there.conflicts.resolve(conflict, keeping: .client)
            try await there.waitUntilSent(timeout: .seconds(60))
            #expect(try await here.record(RecordID("a")) == nil)
        }
    }

    @Test func aCopyIsKeptInStepAndProvesIt() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await other(of: cloud))
            let (here, there) = (try await database(one), try await database(two))
            try await here.save(Record("a", ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))
            try await there.keepCopy()
            try await settle(there)
            two.setOffline(true)
            #expect(try await there.record(RecordID("a"))?["n"] == 1)
            // What is saved offline is seen at once, and sent later.
            try await there.save(Record("b", ["n": 2]))
            #expect(try await there.recordCount() == 2)
            two.setOffline(false)
            try await settle(there)
            #expect(try await here.record(RecordID("b"))?["n"] == 2)
            #expect(try await there.scope(of: RecordZone.defaultName).verify(timeout: .seconds(60)).agrees)
            try await there.dropCopy()
            #expect(try await !there.keepsCopy())
            #expect(try await there.record(RecordID("b"))?["n"] == 2)
        }
    }

    /// What waits is of the place in which it was saved: it goes out before.
    @Test func aCopyIsKeptOnceNothingWaits() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let here = try await database(one)
            one.setOffline(true)
            try await here.save(Record("a", ["n": 1]))
            let error = await #expect(throws: CloudError.self) { try await here.keepCopy() }
            #expect(error?.code == .constraintViolation)
            #expect(try await !here.keepsCopy())
            one.setOffline(false)
            try await here.waitUntilSent(timeout: .seconds(60))
            try await here.keepCopy()
            try await settle(here)
            #expect(try await here.recordCount() == 1)
        }
    }

    /// Whoever keeps it in step for the home hears of it.
    @Test func aCopyThatAnotherProcessDropsIsGone() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await other(of: cloud))
            let (here, there) = (try await database(one), try await database(two))
            try await here.keepCopy()
            try await settle(here)
            let guest = try await database(cloud.open(home: one.session.home.path))
            try await guest.dropCopy()
            for name in ["a", "b"] {
                try await there.save(Record(name, ["n": 1]))
                try await there.waitUntilSent(timeout: .seconds(60))
                cloud.simulation.pass(.seconds(20))
                for database in [here, guest] { #expect(try await !database.keepsCopy()) }
            }
            // It is kept again by whoever says so, and followed by whoever keeps the home in step.
            try await guest.keepCopy()
            try await settle(guest)
            #expect(try await guest.recordCount() == 2)
            #expect(try await here.recordCount() == 2)
        }
    }

    @Test func whatTheRolesDoNotAllowIsRefusedAndListed() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await other(of: cloud))
            let (here, there) = (try await database(one), try await database(two))
            try await here.save(Record("a", ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))
            for keepsCopy in [false, true] {
                if keepsCopy { try await there.keepCopy() }
                try await settle(there)
                var record = try #require(try await there.record(RecordID("a")))
                record["n"] = 2
                try await there.save(record)
                try await settle(there)
                let refused = try await there.conflicts.rejected()
                #expect(refused.map(\.error.code) == [.permissionFailure] && refused.first?.record?["n"] == 2)
                #expect(try await there.conflicts.dismissRejected() == [RecordID("a")])
                #expect(try await there.record(RecordID("a"))?["n"] == 1)
            }
        }
    }

    @Test func aConflictWithOneselfOnAnotherDeviceIsListed() async throws {
        try await withRecords { cloud in
            let devices = [try await cloud.open(), try await cloud.open()]
            let (here, there) = (try await database(devices[0]), try await database(devices[1]))
            try await here.save(Record("a", ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))
            var (mine, theirs) = (
                try #require(try await here.record(RecordID("a"))), try #require(try await there.record(RecordID("a")))
            )
            mine["n"] = 2
            theirs["n"] = 3
            try await here.save(mine)
            try await here.waitUntilSent(timeout: .seconds(60))
            try await there.save(theirs)
            try await there.waitUntilSent(timeout: .seconds(60))
            let conflict = try #require(try await there.conflicts.list().first)
            #expect(conflict.ancestor?["n"] == 1 && conflict.server?["n"] == 2 && conflict.client?["n"] == 3)
            try await there.conflicts.resolve(conflict, keeping: .client)
            try await there.waitUntilSent(timeout: .seconds(60))
            #expect(try await here.record(RecordID("a"))?["n"] == 3)
        }
    }

    @Test func rolesAreListedAndSaidByAdministrators() async throws {
        try await withRecords { cloud in
            let one = try await cloud.open()
            let here = try await database(one)
            #expect(try await here.roles().types == [RecordTypeRoles(type: nil)])
            let error = await #expect(throws: CloudError.self) {
                try await here.modifyRoles(saving: [RecordTypeRoles(type: "Report", everyone: [])])
            }
            #expect(error?.code == .permissionFailure)
            try cloud.simulation.use { cloud in
                var request = WireSaveContainer()
                request.definition.containerID = RecordCloud.container
                request.administrators.accountNames = [TestCloud.accountName]
                try cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
                cloud.network.run(for: .seconds(1))
            }
            let roles = try await here.modifyRoles(saving: [RecordTypeRoles(type: "Report", everyone: [])])
            #expect(roles.isAdministrator && roles.owner == RecordCloud.app && roles.types.count == 2)
            // What not everyone may read is in no copy, and whoever saves it is in step all the same.
            try await here.keepCopy()
            try await settle(here)
            try await here.save(Record("r", type: "Report", ["text": "x"]))
            try await here.save(Record("n", ["text": "y"]))
            try await settle(here)
            #expect(try await here.records(matching: RecordQuery()).map(\.id.name) == ["n"])
            #expect(try await here.record(RecordID("r"), from: .server)?["text"] == "x")
            #expect(try await here.scope(of: RecordZone.defaultName).verify(timeout: .seconds(60)).agrees)
        }
    }

    @Test func aRestoredServerGetsBackFromEachWhatItHasMade() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await other(of: cloud))
            let (here, there) = (try await database(one), try await database(two))
            for database in [here, there] { try await database.keepCopy() }
            try await here.save(Record("a", ["n": 1]))
            for database in [here, there] { try await settle(database) }
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            try await here.save(Record("b", ["n": 2]))
            try await there.save(Record("c", ["n": 3]))
            for database in [here, there, here] { try await settle(database) }
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            // Whoever is asked first has others' records too, and leaves them to those.
            for database in [there, here, there, here] { try await settle(database) }
            for database in [here, there] {
                #expect(try await database.records(matching: RecordQuery()).map(\.id.name) == ["a", "b", "c"])
                #expect(try await database.conflicts.rejected().isEmpty)
                #expect(try await database.conflicts.list().isEmpty)
                #expect(try await database.scope(of: RecordZone.defaultName).verify(timeout: .seconds(60)).agrees)
            }
            let accounts = try [one, two].map { try #require(try $0.session.account).accountID }
            let records = try await here.records([RecordID("b"), RecordID("c")])
            #expect(records[RecordID("b")]?.base?.created.accountID == accounts[0].rawValue)
            #expect(records[RecordID("c")]?.base?.created.accountID == accounts[1].rawValue)
        }
    }

    // MARK: Without an account

    @Test func withoutAnAccountItIsReadAndFollowed() async throws {
        try await withRecords { cloud in
            let here = try await database(try await cloud.open())
            try await here.save(Record("a", ["n": 1]))
            try await here.waitUntilSent(timeout: .seconds(60))
            let token = try makeAppToken(cloud)
            let session = try await cloud.openPublic(token.secret)
            #expect(try session.account == nil)
            let container = try await session.recordContainer()
            let database = container.publicDatabase
            #expect(container.id == RecordCloud.container)
            #expect(try await database.record(RecordID("a"))?["n"] == 1)
            try await database.keepCopy()
            try await database.waitUntilCurrent(timeout: .seconds(60))
            // A second look may still be on its way.
            cloud.simulation.advance(by: .seconds(5))
            let before = cloud.simulation.use { $0.requestCount(.records) }
            try await here.save(Record("b", ["n": 2]))
            try await here.waitUntilSent(timeout: .seconds(60))
            cloud.simulation.advance(by: .seconds(1))
            #expect(try await database.records(matching: RecordQuery()).map(\.id.name) == ["a", "b"])
            // It was told: beside the save the service was asked once at most.
            #expect(cloud.simulation.use { $0.requestCount(.records) } <= before + 2)
            let error = await #expect(throws: CloudError.self) { try await database.save(Record("c", ["n": 3])) }
            #expect(error?.code == .permissionFailure)
            let own = await #expect(throws: CloudError.self) {
                try await container.privateDatabase.record(RecordID("a"), from: .server)
            }
            #expect(own?.code == .permissionFailure)
            // Long after its first access token, and no more once the app's is revoked.
            cloud.simulation.advance(by: .seconds(3600))
            #expect(try await database.record(RecordID("b"), from: .server)?["n"] == 2)
            try cloud.simulation.use { cloud in
                var revoke = WireRevokeAppToken()
                revoke.tokenID = token.token.tokenID
                try cloud.operate("RevokeAppToken", revoke, as: WireRevokeAppTokenReply.self)
                cloud.network.run(for: .seconds(2))
            }
            let revoked = await #expect(throws: CloudError.self) {
                try await database.record(RecordID("b"), from: .server)
            }
            #expect(revoked?.code == .notAuthenticated)
            #expect(try await database.record(RecordID("b"))?["n"] == 2)
        }
    }
}

extension RecordCloud {
    /// A device without an account.
    func openPublic(_ secret: String) async throws -> Session {
        let session = try await openSession()
        try await session.usePublicDatabase(
            connection: ConnectionString(simulation.use { try $0.connection }.description), appToken: secret)
        return session
    }
}
