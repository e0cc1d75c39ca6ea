import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A small service and its model get from the shared parts what key-value has: they keep in step, are told, prove it,
/// and say why anything waits.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried.
@Suite struct NoteTests {
    /// Seeds of a test, unless the environment says another number.
    private static func seeds(_ usual: UInt64) -> ClosedRange<UInt64> {
        1...max(1, ProcessInfo.processInfo.environment["NEPHOS_SEEDS"].flatMap { UInt64($0) } ?? usual)
    }

    private static let allMoments = ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] != nil

    private func cloud(_ seed: UInt64, isBoard: Bool = false) throws -> TestCloud {
        let cloud = try TestCloud(seed: seed, factories: [.records: { _ in NotesService(isBoard: isBoard) }])
        var app = WireApp()
        app.appID = "T.notes"
        app.containerIds = ["T.notes"]
        try cloud.createApp(app)
        return cloud
    }

    /// A device's notes.
    private final class Notebook {
        let device: TestDevice
        let model: NotesModel
        let driver: ScopeDriver

        init(_ device: TestDevice, isBoard: Bool = false) throws {
            self.device = device
            let engine = try #require(device.engine)
            model = NotesModel(engine)
            if isBoard { model.owner = Owner(model.app) }
            driver = try engine.open(model)
        }

        /// Accepts a note, and sends it when it can be.
        func set(_ name: ItemName, _ text: String?) throws {
            try driver.write { try model.append(Note(name: name, text: text.map { [UInt8]($0.utf8) }), in: $0) }
            driver.push()
        }

        var texts: [ItemName: String] {
            get throws {
                let notes = try driver.read { try model.notes(in: $0) }
                return Dictionary(notes.map { ($0.name, String(decoding: $0.text ?? [], as: UTF8.self)) }) { $1 }
            }
        }

        var isInSync: Bool { (try? driver.status().isInSync) == true }
    }

    private func verify(_ cloud: TestCloud, _ book: Notebook) throws -> Verification {
        var result: Result<Verification, CloudError>?
        book.driver.verify(timeout: .seconds(30)) { result = $0 }
        cloud.network.run(within: .seconds(60)) { result != nil }
        return try #require(result).get()
    }

    @Test func whatOneWritesTheOtherIsToldOfWithoutAsking() throws {
        let cloud = try cloud(1)
        defer { cloud.close() }
        let books = try (0..<2).map { _ in try Notebook(cloud.addDevice()) }
        try books[0].set("first", "one")
        #expect(cloud.settle())
        // A second look may still be on its way.
        cloud.network.run(for: .seconds(5))
        let asked = cloud.requestCount(.records)
        let told = books[1].model.told.count
        try books[0].set("second", "two")
        cloud.network.run(for: .seconds(1))
        #expect(try books[1].texts == ["first": "one", "second": "two"])
        #expect(books[1].model.told.dropFirst(told).map(\.changedKeys) == [["second"]])
        // The write, and nobody's pull.
        #expect(cloud.requestCount(.records) == asked + 1)
        let statuses = try books.map { try $0.driver.status() }
        #expect(statuses[0].digest == statuses[1].digest && statuses.allSatisfy { $0.isFollowing && $0.isInSync })
        try books[1].set("first", nil)
        #expect(cloud.settle())
        #expect(try books[0].texts == ["second": "two"])
    }

    @Test func whatWaitsSaysWhyAndIsSentWhenItCanBe() throws {
        let cloud = try cloud(2)
        defer { cloud.close() }
        let books = try (0..<2).map { _ in try Notebook(cloud.addDevice()) }
        #expect(cloud.settle())
        books[0].device.setOffline(true)
        try books[0].set("k", "offline")
        cloud.network.run(for: .seconds(40))
        let waiting = try #require(try books[0].driver.status().pending.first)
        #expect(waiting.keys == ["k"] && waiting.blocker == .network && !waiting.reason.isEmpty)
        #expect(!books[0].isInSync)
        // It is on disk: another process would send it.
        books[0].device.setOffline(false)
        #expect(cloud.settle())
        #expect(try books[1].texts == ["k": "offline"])
    }

    @Test func whatTheServiceRefusesIsToldAndTakenOut() throws {
        let cloud = try cloud(3)
        defer { cloud.close() }
        let book = try Notebook(cloud.addDevice())
        #expect(cloud.settle())
        try book.set("long", String(repeating: "x", count: NotesService.bytesMax + 1))
        cloud.network.run(for: .seconds(5))
        #expect(book.model.told.last?.reason == .quotaViolationChange && book.model.told.last?.changedKeys == ["long"])
        #expect(try book.driver.status().pending.isEmpty)
    }

    @Test func aCopyThatDiffersIsFoundAndHeals() throws {
        let cloud = try cloud(4)
        defer { cloud.close() }
        let book = try Notebook(cloud.addDevice())
        for name: ItemName in ["a", "b", "c"] { try book.set(name, "text") }
        #expect(cloud.settle())
        #expect(try verify(cloud, book).agrees)
        try book.driver.write { rows in
            try rows.database.execute(sql: "UPDATE notes SET text = x'00' WHERE name = 'b'")
            try rows.database.execute(sql: "DELETE FROM notes WHERE name = 'c'")
        }
        let found = try verify(cloud, book)
        #expect(found.differences == [.init(key: "b", kind: .differs), .init(key: "c", kind: .missingHere)])
        // The digest is kept along, so a damaged one is what the next pull sees.
        try book.driver.write { rows in
            var state = try rows.state()
            state.digest = .empty
            try rows.save(state)
        }
        book.driver.pull()
        #expect(cloud.settle())
        #expect(try verify(cloud, book).agrees)
    }

    @Test func ofVeryManyDifferencesTheFirstAreListed() throws {
        let cloud = try cloud(4)
        defer { cloud.close() }
        let book = try Notebook(cloud.addDevice())
        for name: ItemName in ["a", "m", "z"] { try book.set(name, "text") }
        #expect(cloud.settle())
        let most = Verification.differencesMax
        let numbers = (0..<most).map { "n\(10_000 + $0)" }
        try book.driver.write { rows in
            for name in numbers {
                try rows.database.execute(
                    sql: "INSERT INTO notes (account, name, text, sequence) VALUES (?, ?, x'00', 1)",
                    arguments: [rows.account, name])
            }
            try rows.database.execute(sql: "DELETE FROM notes WHERE name IN ('a', 'z')")
        }
        let found = try verify(cloud, book)
        let expected =
            [Verification.Difference(key: "a", kind: .missingHere)]
            + numbers.dropLast().map { .init(key: ItemName($0), kind: .missingOnServer) }
        #expect(found.differences == expected && found.hasMore && !found.agrees)
        try book.driver.write { try $0.database.execute(sql: "DELETE FROM notes WHERE text = x'00'") }
        #expect(try verify(cloud, book).differences.map(\.key) == ["a", "z"])
        // Nothing of it is kept.
        let left = try book.device.local.readBesideStage {
            try Int.fetchOne($0, sql: "SELECT count(*) FROM temp.staged")
        }
        #expect(left == 0)
    }

    @Test func nothingOfAnAccountStaysWhenAnotherSignsIn() throws {
        let cloud = try cloud(5)
        defer { cloud.close() }
        try cloud.createAccount("bert")
        let book = try Notebook(cloud.addDevice())
        try book.set("of demo", "text")
        #expect(cloud.settle())
        func kept() throws -> Int {
            try book.device.local.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM notes") ?? -1 }
        }
        #expect(try kept() == 1)
        try book.device.signIn(as: "bert", discardsUnsent: true)
        #expect(try kept() == 0)
        #expect(cloud.settle())
        #expect(try book.texts.isEmpty)
    }

    /// Whether these, of all devices, come to the same state.
    private func settle(_ cloud: TestCloud, _ books: [Notebook]) -> Bool {
        func isSo() -> Bool {
            let places = books.map { try? $0.driver.status().head }
            return books.allSatisfy { (try? $0.driver.status().isInSync) == true }
                && places.allSatisfy { $0 == places[0] }
        }
        // To look after each event would take longer than all that happens.
        let end = cloud.network.now + .seconds(600)
        while !isSo() {
            guard cloud.network.now < end else { return false }
            cloud.network.run(for: .milliseconds(10))
        }
        return true
    }

    /// Devices of as many accounts, all of which follow one board.
    private func boards(_ cloud: TestCloud, _ count: Int) throws -> [Notebook] {
        try (0..<count).map { number in
            try cloud.createAccount("reader-\(number)")
            let device = try cloud.addDevice()
            try device.signIn(as: "reader-\(number)")
            return try Notebook(device, isBoard: true)
        }
    }

    private func bar(_ book: Notebook, by other: Notebook, _ isBarred: Bool = true) throws {
        let account = try #require(book.device.session?.accountID)
        try other.set(ItemName("barred/" + account.rawValue), isBarred ? "yes" : nil)
    }

    @Test func aBoardIsFollowedByAllAccountsAndItsServiceIsAskedOnce() throws {
        let cloud = try cloud(6, isBoard: true)
        defer { cloud.close() }
        let first = try boards(cloud, 1)
        try first[0].set("first", "one")
        #expect(settle(cloud, first))
        try cloud.createAccount("late")
        let device = try cloud.addDevice()
        try device.signIn(as: "late")
        cloud.network.run(for: .seconds(5))
        let asked = cloud.requestCount(.records)
        let late = try Notebook(device, isBoard: true)
        #expect(settle(cloud, first + [late]))
        // Its pull, and nobody's question.
        #expect(cloud.requestCount(.records) == asked + 1)
        try late.set("second", "two")
        cloud.network.run(for: .seconds(1))
        #expect(try first[0].texts == ["first": "one", "second": "two"])
        // The write, and nobody's pull.
        #expect(cloud.requestCount(.records) == asked + 2)
        #expect(try verify(cloud, first[0]).agrees && verify(cloud, late).agrees)
        #expect(try first[0].driver.status().isFollowing && late.driver.status().isFollowing)
    }

    @Test func whoMayNotReadABoardHearsNothingOfItFromThenOn() throws {
        let cloud = try cloud(7, isBoard: true)
        defer { cloud.close() }
        let books = try boards(cloud, 3)
        try books[0].set("seen", "by all")
        #expect(settle(cloud, books))
        try bar(books[2], by: books[0])
        try books[0].set("unseen", "by one")
        #expect(settle(cloud, [books[0], books[1]]))
        cloud.network.run(for: .seconds(60))
        #expect(try books[1].texts["unseen"] == "by one" && books[2].texts == ["seen": "by all"])
        let status = try books[2].driver.status()
        #expect(!status.isFollowing && !status.isInSync && status.problem?.code == .missingEntitlement)
        #expect(try books[1].driver.status().isFollowing)
        try bar(books[2], by: books[1], false)
        #expect(settle(cloud, books))
        #expect(try books[2].texts["unseen"] == "by one" && books[2].driver.status().isFollowing)
    }

    /// Events may be lost on their way to notifications, which then learns of a scope's head alone.
    @Test(arguments: seeds(4))
    func whoMayNotReadABoardHearsNothingThoughEventsAreLost(seed: UInt64) throws {
        let cloud = try cloud(200 + seed, isBoard: true)
        defer { cloud.close() }
        let books = try boards(cloud, 3)
        try books[0].set("seen", "by all")
        #expect(settle(cloud, books))
        cloud.network.faults = Faults(loss: 0.5)
        try bar(books[2], by: books[0])
        if seed.isMultiple(of: 4) {
            cloud.crash(.notifications)
            cloud.network.run(for: .seconds(1))
            try cloud.start(.notifications)
        }
        let account = try #require(books[2].device.session?.accountID)
        #expect(
            cloud.network.run(within: .seconds(600)) {
                (try? books[1].texts.keys.contains("barred/\(account)")) == true
            })
        cloud.network.faults = .none
        #expect(settle(cloud, [books[0], books[1]]))
        // That the subscription has ended may have been lost as well: three heartbeats are missed then.
        cloud.network.run(for: .seconds(30))
        try books[0].set("unseen", "by one")
        #expect(settle(cloud, [books[0], books[1]]))
        cloud.network.run(for: .seconds(30))
        #expect(try books[2].texts["unseen"] == nil)
        #expect(try !books[2].driver.status().isFollowing)
        #expect(try books[1].driver.status().isFollowing)
    }

    /// An answer that was given before a change of access must not be believed after it.
    /// With `NEPHOS_SEEDS` at twice as many moments as usual.
    @Test(arguments: Array(stride(from: 0, to: 24, by: allMoments ? 1 : 2)))
    func whoIsBarredWhileSubscribingIsBarred(step: Int) throws {
        let cloud = try cloud(300 + UInt64(step), isBoard: true)
        defer { cloud.close() }
        let books = try boards(cloud, 2)
        // One who may not read it, so that nobody is let in with all others.
        try books[0].set("barred/nobody", "yes")
        #expect(settle(cloud, books))
        try cloud.createAccount("late")
        let device = try cloud.addDevice()
        try device.signIn(as: "late")
        cloud.network.run(for: .seconds(5))
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(40)))
        let account = try #require(device.session?.accountID)
        let late = try Notebook(device, isBoard: true)
        cloud.network.run(for: .milliseconds(step * 5))
        try books[0].set(ItemName("barred/" + account.rawValue), "yes")
        #expect(settle(cloud, books))
        cloud.network.run(for: .seconds(1))
        try books[0].set("unseen", "by one")
        #expect(settle(cloud, books))
        cloud.network.run(for: .seconds(40))
        #expect(try late.texts["unseen"] == nil)
        #expect(try !late.driver.status().isFollowing && books[1].driver.status().isFollowing)
    }

    @Test func nobodyElsesScopesAreFollowedOrRead() throws {
        let cloud = try cloud(8)
        defer { cloud.close() }
        let book = try Notebook(cloud.addDevice())
        try book.set("mine", "text")
        #expect(settle(cloud, [book]))
        try cloud.createAccount("bert")
        let device = try cloud.addDevice()
        try device.signIn(as: "bert")
        let curious = NotesModel(try #require(device.engine))
        curious.owner = book.device.session.map { Owner($0.accountID) }
        let driver = try #require(device.engine).open(curious)
        cloud.network.run(for: .seconds(10))
        let status = try driver.status()
        #expect(!status.isFollowing && !status.isInSync && status.problem?.code == .missingEntitlement)
        #expect(try driver.read { try curious.notes(in: $0) }.isEmpty)
        try book.set("more", "text")
        cloud.network.run(for: .seconds(10))
        #expect(try driver.read { try curious.notes(in: $0) }.isEmpty && curious.told.isEmpty)
    }

    @Test func whatIsOpenUnderTheAccountsNameTooIsFollowedOnce() throws {
        let cloud = try cloud(9)
        defer { cloud.close() }
        let book = try Notebook(cloud.addDevice())
        #expect(settle(cloud, [book]))
        let named = NotesModel(try #require(book.device.engine))
        named.owner = book.device.session.map { Owner($0.accountID) }
        let driver = try #require(book.device.engine).open(named)
        cloud.network.run(for: .seconds(10))
        let asked = cloud.requestCount(.notifications)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.requestCount(.notifications) == asked)
        #expect(try driver.status().isFollowing && book.driver.status().isFollowing)
    }

    @Test(arguments: seeds(5))
    func devicesConvergeOverLinesThatLoseRepeatAndReorder(seed: UInt64) throws {
        let cloud = try cloud(100 + seed)
        defer { cloud.close() }
        var generator = SplitMix64(seed: seed)
        let books = try (0..<3).map { _ in try Notebook(cloud.addDevice()) }
        #expect(cloud.settle())
        cloud.network.faults = Faults(loss: 0.05, duplication: 0.05, reordering: 0.1)
        for step in 0..<60 {
            let book = books[Int.random(in: 0..<3, using: &generator)]
            let name = ItemName("n\(Int.random(in: 0..<8, using: &generator))")
            try book.set(name, Bool.random(using: &generator) ? "step \(step)" : nil)
            if step == 30 {
                cloud.crash(.records)
                cloud.network.run(for: .seconds(2))
                try cloud.start(.records)
            }
            cloud.network.run(for: .milliseconds(Int.random(in: 0..<200, using: &generator)))
        }
        cloud.network.faults = .none
        #expect(cloud.settle())
        let texts = try books.map { try $0.texts }
        #expect(texts.allSatisfy { $0 == texts[0] } && !texts[0].isEmpty)
        #expect(try verify(cloud, books[0]).agrees)
    }

    // One process of a home keeps what it knows of in step for the others; what it does not know they keep themselves.
    @Test(arguments: [false, true]) func aHomesProcessesShareAScope(isKnown: Bool) throws {
        let cloud = try cloud(31)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        let other = try Notebook(try cloud.addDevice())
        if isKnown { first.engine?.kinds = [KeyValueKind(), DocumentsKind(), NotesKind()] }
        let book = try Notebook(second)
        #expect(cloud.network.run(within: .seconds(30)) { book.isInSync && other.isInSync })
        #expect(second.engine?.home.isDelegated(book.driver.key) == isKnown)
        try book.set("mine", "a")
        try other.set("theirs", "b")
        let all: [ItemName: String] = ["mine": "a", "theirs": "b"]
        #expect(cloud.network.run(within: .seconds(5)) { (try? book.texts) == all && (try? other.texts) == all })
        #expect(cloud.network.run(within: .seconds(5)) { book.isInSync })
        #expect(try verify(cloud, book).agrees)
        #expect(try book.driver.status().isFollowing)
        first.stop()
        try book.set("more", "c")
        #expect(cloud.network.run(within: .seconds(5)) { (try? other.texts["more"]) == "c" })
    }

    // The app of the holder opens what it keeps in step for a guest already.
    @Test func whatIsKeptForAGuestIsKeptOnceWhenItsHolderOpensItToo() throws {
        let cloud = try cloud(32)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        first.engine?.kinds = [KeyValueKind(), DocumentsKind(), NotesKind()]
        let second = try cloud.addProcess(of: first)
        let other = try Notebook(try cloud.addDevice())
        let guest = try Notebook(second)
        #expect(cloud.network.run(within: .seconds(30)) { guest.isInSync })
        cloud.crash(.records)
        try guest.set("mine", "a")
        var sent: Result<Void, CloudError>?
        guest.driver.wait(for: .sent, timeout: .seconds(60)) { sent = $0 }
        cloud.network.run(for: .seconds(1))
        let book = try Notebook(first)
        cloud.network.run(for: .seconds(1))
        #expect(try first.engine?.standings().filter { $0.service == .records }.count == 1)
        try cloud.start(.records)
        #expect(cloud.network.run(within: .seconds(60)) { sent != nil })
        #expect(throws: Never.self) { try sent?.get() }
        #expect(cloud.network.run(within: .seconds(5)) { book.isInSync && guest.isInSync })
        second.stop()
        cloud.network.run(for: .seconds(1))
        try other.set("theirs", "b")
        #expect(cloud.network.run(within: .seconds(1)) { (try? book.texts) == ["mine": "a", "theirs": "b"] })
        #expect(book.model.told.last?.changedKeys == ["theirs"])
    }
}
