import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

import struct Foundation.Data

/// A container's public database: one for all accounts, on its app's plan, with roles.
@Suite struct PublicDatabaseTests {
    private let house: PublicHouse
    private let here: RecordDevice
    private let there: RecordDevice

    init() throws {
        house = try PublicHouse()
        here = try house.device()
        there = try house.device(PublicHouse.other)
    }

    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return CloudError(wrapping: error).code }
        return nil
    }

    @Test func whatOneAccountSavesEverybodyReadsAlsoWithoutAnAccount() throws {
        try here.save("a", ["title": .string("Sea")])
        let stranger = try house.stranger()
        for reader in [here, there, stranger] {
            #expect(try reader.list()["a"]?["title"] == .string("Sea"))
            #expect(try reader.fetch(["a"])["a"]?["title"] == .string("Sea"))
            #expect(try reader.find("title == 'Sea'", type: "Note").names == ["a"])
        }
        // Of which account it is, and not of which device.
        let record = try #require(try there.list()["a"])
        #expect(record.created.accountID == here.mover.account.rawValue && record.created.deviceID.isEmpty)
        #expect(try house.house.device().list().isEmpty)
    }

    @Test func itHasNoEncryptedFields() throws {
        var sealed = WireEncryptedValue()
        (sealed.suite, sealed.keyID, sealed.sealed) = (1, Data([1]), Data([2, 3]))
        let change = WireRecordChange.save("a", ["sealed": .encrypted(sealed)])
        for writer in [here, try house.device(PublicHouse.administrator)] {
            #expect(try writer.modify([change]).codes == [.invalidArguments])
        }
        #expect(try there.list().isEmpty)
        #expect(try house.house.device().modify([change]).codes == [nil])
    }

    @Test func onlyWhoHasMadeARecordChangesItAndAnAdministrator() throws {
        let change = WireRecordChange.save("a", ["title": .string("one")])
        _ = try here.modify([change])
        let version = change.save.version
        for policy in [WireSavePolicy.ifServerRecordUnchanged, .changedKeys, .allKeys] {
            #expect(
                try there.modify([.save("a", ["title": .string("two")], base: version, policy: policy)]).codes
                    == [.permissionFailure])
        }
        // Neither by not knowing of it, nor by deleting it, which a repeat of the first save shows.
        #expect(try there.modify([.save("a", ["title": .string("three")])]).codes == [.permissionFailure])
        #expect(try there.modify([.delete("a")]).codes == [.permissionFailure])
        #expect(try here.modify([change]).codes == [nil])
        #expect(try there.list()["a"]?["title"] == .string("one"))
        let again = try here.save("a", ["title": .string("four")], base: version)
        let administrator = try house.device(PublicHouse.administrator)
        try administrator.save("a", ["title": .string("five")], base: again)
        let record = try #require(try there.list()["a"])
        #expect(record["title"] == .string("five") && record.created.accountID == here.mover.account.rawValue)
        #expect(try here.modify([.delete("a")]).codes == [nil])
        #expect(try there.list().isEmpty)
    }

    @Test func whoMayNotCreateIsRefusedAndAWikiIsEverybodys() throws {
        try house.setRoles(of: "Notice", signedIn: .none)
        try house.setRoles(of: "Page", signedIn: .reading(create: true, write: true))
        #expect(try there.modify([.save("n", type: "Notice")]).codes == [.permissionFailure])
        #expect(try house.device(PublicHouse.administrator).modify([.save("n", type: "Notice")]).codes == [nil])
        let page = WireRecordChange.save("p", ["text": .string("one")], type: "Page")
        #expect(try here.modify([page]).codes == [nil])
        let next = WireRecordChange.save("p", ["text": .string("two")], type: "Page", base: page.save.version)
        #expect(try there.modify([next]).codes == [nil])
        #expect(
            try here.modify([.save("p", ["text": .string("three")], type: "Page", base: page.save.version)]).codes
                == [.serverRecordChanged])
        let record = try #require(try here.list()["p"])
        #expect(record.created.accountID == here.mover.account.rawValue)
        #expect(record.modified.accountID == there.mover.account.rawValue)
    }

    // MARK: What not everyone may read

    @Test func aRecordThatOneMayNotReadIsNotThere() throws {
        try house.setRoles(of: "Report", everyone: .none)
        try house.setRoles(of: "Club", signedIn: .reading(create: true), everyone: .none)
        let stranger = try house.stranger()
        let before = try stranger.changes().token
        let report = WireRecordChange.save("secret", ["text": .string("x")], type: "Report")
        let outcome = try here.modify([report])
        #expect(outcome.codes == [nil] && outcome.records[0].notInFeed)
        _ = try here.modify([.save("club", ["text": .string("x")], type: "Club"), .save("open")])
        for reader in [here, there, stranger] {
            #expect(try reader.list().keys.sorted() == ["open"])
            #expect(try reader.changes(after: before).gone == ["open": false])
            #expect(try reader.changes().reply.info == stranger.changes().reply.info)
        }
        #expect(try here.fetch(["secret", "club", "open"]).keys.sorted() == ["club", "open", "secret"])
        #expect(try there.fetch(["secret", "club", "open"]).keys.sorted() == ["club", "open"])
        #expect(try stranger.fetch(["secret", "club", "open"]).keys.sorted() == ["open"])
        #expect(try here.find().names == ["club", "open", "secret"])
        #expect(try there.find().names == ["club", "open"])
        let found = try stranger.find("text == 'x'", limit: 1, explain: true)
        #expect(found.names.isEmpty && found.replies.allSatisfy { $0.examined == 0 && $0.plan.rows == 0 })
        let cursors = try stranger.find(limit: 1).replies.map(\.after)
        #expect(cursors.allSatisfy { !$0.contains("secret") && !$0.contains("club") })
        #expect(try house.device(PublicHouse.administrator).find().names == ["club", "open", "secret"])
    }

    @Test func nothingElseTellsOfIt() throws {
        try house.setRoles(of: "Report", everyone: .none)
        let report = WireRecordChange.save("secret", ["text": .string("x")], type: "Report")
        _ = try here.modify([report])
        // As of one that is not there: a save over it, a deletion, a condition, a parent, a target.
        #expect(
            try there.modify([.save("secret", type: "Report", base: RecordDevice.version())]).codes == [.unknownItem])
        #expect(try there.modify([.delete("secret")]).codes == [nil])
        #expect(try there.modify([.delete("secret", base: RecordDevice.version())]).codes == [nil])
        var condition = WireRecordCondition()
        condition.record = "secret"
        #expect(!(try there.modify([.save("b")], if: [condition]).hasFailure))
        #expect(try there.modify([.save("c", parent: "secret")]).codes == [.referenceViolation])
        #expect(try there.modify([.save("d", ["to": .with("secret")])]).codes == [.referenceViolation])
        // Only that the name is taken.
        let taken = try there.modify([.save("secret", ["text": .string("mine")], type: "Report")])
        #expect(taken.codes == [.permissionFailure] && !taken.records[0].hasRecord)
        #expect(try here.fetch(["secret"])["secret"]?["text"] == .string("x"))
        #expect(try there.history().isEmpty)
    }

    @Test func placesOfPagesTellNoNames() throws {
        try house.setRoles(of: "Report", everyone: .none)
        let stranger = try house.stranger()
        let before = try stranger.changes().token
        _ = try here.modify([.save("first")])
        _ = try here.modify([.save("hidden", type: "Report"), .save("middle"), .save("removed", type: "Report")])
        _ = try here.modify([.delete("removed"), .save("last")])
        for token in [before, WireChangeToken()] {
            var request = WireReadChanges()
            (request.scope, request.owner) = ("\(stranger.container)/\(stranger.zone)", "app/\(stranger.owner)")
            (request.after, request.itemsMax) = (token, 1)
            var names: [String] = []
            var places: [WireChangesPlace] = []
            while true {
                let reply = try stranger.call("ReadChanges", request, as: WireReadChangesReply.self)
                names += reply.changes.map(\.item)
                guard reply.hasPlace else { break }
                places.append(reply.place)
                request.place = reply.place
                // What is told beside what is sealed is not gone by.
                request.place.start = WireChangeToken()
                request.place.token.sequence = 1
            }
            // Nor is there a page for what is hidden.
            #expect(names == ["first", "middle", "last"] && places.count == 2)
            for place in places {
                let bytes: Data = try place.serializedData()
                #expect(["hidden", "removed", "first"].allSatisfy { bytes.range(of: Data($0.utf8)) == nil })
            }
        }
    }

    @Test func aPlaceThatNoPageHasEndedWithIsRefused() throws {
        _ = try here.modify([.save("a"), .save("b"), .save("c")])
        var request = WireReadChanges()
        (request.scope, request.owner) = ("\(here.container)/\(here.zone)", "app/\(here.owner)")
        request.itemsMax = 1
        let place = try here.call("ReadChanges", request, as: WireReadChangesReply.self).place
        func code(_ place: WireChangesPlace, of container: String = RecordHouse.container) -> CloudError.Code? {
            (request.place, request.scope) = (place, "\(container)/\(here.zone)")
            return self.code { try here.call("ReadChanges", request, as: WireReadChangesReply.self) }
        }
        #expect(code(place) == nil)
        // By places of one's own the names could be found by halving.
        var made = place
        made.item = "b"
        #expect(code(made) == .invalidArguments)
        made.last = nil
        #expect(code(made) == .invalidArguments)
        for bytes in [Data(place.sealed.reversed()), Data(), Data("b".utf8), Data(count: 10_000)] {
            made.sealed = bytes
            #expect(code(made) == (bytes.isEmpty ? .invalidArguments : .changeTokenExpired))
        }
        #expect(code(place, of: "T.shared") == .changeTokenExpired)
    }

    @Test func whoMayReadATypeChangesAndTheFeedFollows() throws {
        _ = try here.modify((0..<150).map { .save("r\($0)", ["n": .integer($0)], type: "Report") } + [.save("open")])
        let stranger = try house.stranger()
        let all = try stranger.changes()
        #expect(all.gone.count == 151)
        #expect(try house.setRoles(of: "Report", everyone: .none).changing)
        #expect(try stranger.list().keys.sorted() == ["open"])
        let later = try stranger.changes(after: all.token)
        #expect(later.gone.count == 150 && later.gone.values.allSatisfy { $0 })
        #expect(try here.fetch(["r7"]).count == 1)
        #expect(try stranger.fetch(["r7"]).isEmpty)
        // One that is new is nobody's business, and one that is deleted was known.
        _ = try here.modify([.save("late", type: "Report"), .delete("r7")])
        #expect(try stranger.changes(after: later.token).gone == ["r7": true])
        _ = try here.modify([.delete("late")])
        let silent = try stranger.changes(after: later.token)
        #expect(silent.gone == ["r7": true])
        try house.setRoles(of: "Report")
        #expect(try stranger.list().count == 150)
        #expect(try stranger.changes(after: silent.token).gone.count == 149)
        #expect(try house.house.rows(of: "record_role_changes") == 0)
    }

    /// What was said of one type is taken back: what is said of all others holds for it again.
    @Test func rolesOfATypeAreTakenBack() throws {
        _ = try here.modify([.save("a", type: "Report")])
        let stranger = try house.stranger()
        try house.setRoles(of: "Report", everyone: .none)
        #expect(try stranger.list().isEmpty && stranger.fetch(["a"]).isEmpty)
        var request = WireModifyRecordRoles()
        (request.container, request.delete) = (RecordHouse.container, ["Report", "never"])
        let administrator = try house.device(PublicHouse.administrator)
        let reply = try administrator.call("ModifyRecordRoles", request, as: WireModifyRecordRolesReply.self)
        #expect(reply.roles.types.map(\.type) == [""])
        house.cloud.network.run(for: .seconds(5))
        #expect(try stranger.list().keys.sorted() == ["a"])
        #expect(try house.house.rows(of: "record_roles") == 0)
    }

    // MARK: What is remembered of deletions

    /// Whoever saves and deletes without an end is held off before that ends the places of those who read.
    @Test func nobodyEndsAllPlacesByDeleting() throws {
        _ = try here.modify([.save("stays")])
        let stranger = try house.stranger()
        let before = try stranger.changes().token
        func cycle(_ device: RecordDevice, _ round: Int) throws {
            _ = try device.modify((0..<400).map { .save("r\(round)-\($0)") })
            _ = try device.modify((0..<400).map { .delete("r\(round)-\($0)") })
        }
        for round in 0..<11 { try cycle(there, round) }
        let error = #expect(throws: CloudError.self) { try cycle(there, 11) }
        #expect(error?.code == .requestRateLimited && error?.details["budget"] == "deletions")
        let wait = try #require(error?.retryAfter)
        // 4400 were deleted, and the next one is one more than 4096.
        #expect(wait > .seconds(304) && wait <= .seconds(305))
        // Nor is anything else of it held off, or anybody else.
        #expect(try there.modify([.save("more")]).codes == [nil])
        #expect(try here.modify([.delete("stays")]).codes == [nil])
        let administrator = try house.device(PublicHouse.administrator)
        #expect(try administrator.modify((0..<400).map { .delete("r11-\($0)") }).hasFailure == false)
        // A place from before all of that is good.
        var request = WireReadChanges()
        (request.scope, request.owner) = ("\(stranger.container)/\(stranger.zone)", "app/\(stranger.owner)")
        request.after = before
        var count = 0
        repeat {
            let page = try stranger.call("ReadChanges", request, as: WireReadChangesReply.self)
            count += page.changes.count
            request.place = page.place
            if !page.hasPlace { request.clearPlace() }
        } while request.hasPlace
        #expect(count == 4802)
        house.cloud.network.run(for: wait)
        #expect(try there.modify([.delete("more")]).codes == [nil])
    }

    // MARK: What hangs together

    @Test func strangersHangNothingOnARecord() throws {
        _ = try here.modify([.save("post")])
        #expect(try there.modify([.save("c", parent: "post")]).codes == [.permissionFailure])
        #expect(try there.modify([.save("c", ["to": .with("post")])]).codes == [.permissionFailure])
        #expect(try there.modify([.save("c", ["to": .with("not there yet")])]).codes == [.referenceViolation])
        var reference = WireRecordReference()
        reference.record = "post"
        #expect(try there.modify([.save("c", ["to": .reference(reference)])]).codes == [nil])
        // One's own go with it, and what those have hung there who might.
        _ = try here.modify([.save("mine", ["to": .with("post")])])
        let administrator = try house.device(PublicHouse.administrator)
        _ = try administrator.modify([.save("theirs", ["to": .with("post")])])
        let outcome = try here.modify([.delete("post")])
        #expect(outcome.codes == [nil] && outcome.cascaded.sorted() == ["mine", "theirs"])
        #expect(try there.list().keys.sorted() == ["c"])
    }

    @Test func whatIsOverwrittenOnlyTheOneSeesWhoseItWas() throws {
        try house.setRoles(of: "Page", signedIn: .reading(create: true, write: true))
        _ = try here.modify([.save("p", ["text": .string("one")], type: "Page")])
        _ = try there.modify([.save("p", ["text": .string("two")], type: "Page", policy: .allKeys)])
        #expect(try here.history().map { $0.record["text"] } == [.string("one")])
        #expect(try there.history().isEmpty)
        #expect(try house.device(PublicHouse.administrator).history().count == 1)
    }

    // MARK: Whose it is

    @Test func itCountsOnTheAppsPlanAndOnNobodyElses() throws {
        let before = try house.house.used(of: here.mover.account)
        try here.save("a", ["text": .string(String(repeating: "x", count: 10_000))])
        #expect(try house.house.used(of: here.mover.account) == before)
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) > 10_000)
        var plan = WireSavePlan()
        (plan.plan.planID, plan.plan.sizeBytes) = ("small", 20_000)
        try house.cloud.operate("SavePlan", plan, as: WireSavePlanReply.self)
        var set = WireSetPlan()
        (set.appID, set.planID) = (RecordHouse.app, "small")
        try house.cloud.operate("SetPlan", set, as: WireSetPlanReply.self)
        house.cloud.network.run(for: .seconds(5))
        #expect(
            code { try here.save("b", ["text": .string(String(repeating: "x", count: 20_000))]) } == .quotaExceeded)
        try here.delete("a")
        #expect(try house.house.used(of: Owner(AppID(RecordHouse.app))) == 0)
    }

    @Test func anotherAppThatListsTheContainerHasTheSameDatabase() throws {
        let first = try house.device().ofPublic(owner: RecordHouse.app, container: "T.shared")
        let second = try house.house.device(app: "T.other").ofPublic(owner: RecordHouse.app, container: "T.shared")
        try first.save("a")
        #expect(try second.list().keys.sorted() == ["a"])
        try second.save("b")
        #expect(try first.list().keys.sorted() == ["a", "b"])
        // One that does not list it sees nothing, and none reads it as another owner's.
        let foreign = try house.house.device(app: "T.other").ofPublic()
        #expect(code { _ = try foreign.list() } == .missingEntitlement)
        #expect(code { try foreign.save("c") } == .missingEntitlement)
        #expect(code { _ = try second.ofPublic(owner: "T.other", container: "T.shared").list() } == .missingEntitlement)
    }

    @Test func zonesAndIndexesAreNotForEverybody() throws {
        #expect(code { try here.makeZone("work") } == .invalidArguments)
        here.zone = RecordDevice.zoneID()
        #expect(CloudError.Code(number: try here.modify([.save("a")]).failure.code) == .zoneNotFound)
        var request = WireModifyRecordIndexes()
        (request.container, request.database) = (RecordHouse.container, .public)
        var index = WireRecordIndex()
        index.type = "Note"
        var field = WireIndexedField()
        field.field = "title"
        index.fields = [field]
        request.save = [index]
        #expect(
            code { try there.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self) }
                == .permissionFailure)
        for number in 0..<120 { _ = try there.modify([.save("n\(number)", ["title": .string("t\(number % 3)")])]) }
        let administrator = try house.device(PublicHouse.administrator)
        try administrator.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
        house.cloud.network.run(for: .seconds(10))
        let found = try house.stranger().find("title == 't1'", type: "Note", explain: true)
        #expect(found.names.count == 40 && found.replies.first?.plan.way != .scan)
        (request.save, request.delete) = ([], [index])
        try administrator.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.house.rows(of: "record_index WHERE index_number > 0") == 0)
    }

    @Test func rolesAreForAdministratorsAndSayNothingThatNobodyCanHave() throws {
        #expect(code { try house.setRoles(of: "Note", by: here) } == .permissionFailure)
        var wrong = WireRecordRights()
        wrong.write = true
        #expect(code { try house.setRoles(of: "Note", everyone: wrong) } == .invalidArguments)
        #expect(code { try house.setRoles(of: "Note", creator: .creating) } == .invalidArguments)
        #expect(code { try house.setRoles(of: "no type", creator: .none) } == .invalidArguments)
        let roles = try house.setRoles(of: "Note", creator: .none)
        #expect(roles.administrator && roles.ownerApp == RecordHouse.app)
        var list = WireListRecordRoles()
        list.container = RecordHouse.container
        let listed = try here.call("ListRecordRoles", list, as: WireListRecordRolesReply.self).roles
        #expect(listed.types.map(\.type) == ["", "Note"] && !listed.administrator)
        #expect(!listed.types[1].creator.write && listed.types[0].creator.write)
    }
}
