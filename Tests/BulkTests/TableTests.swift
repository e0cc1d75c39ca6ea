import NephosBus
import NephosContent
import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

@testable import NephosBulk

@Suite struct TableTests {
    private func key(_ number: UInt8) throws -> PublicKey {
        try #require(PublicKey(bytes: [UInt8](repeating: number, count: 32)))
    }

    private func ticket(
        _ number: UInt64, key: PublicKey, account: String = "account", lifetime: Duration = .seconds(60),
        appToken: String? = nil
    ) throws -> Ticket {
        var generator = SplitMix64(seed: number)
        let account = AccountID(account)
        let caller = Caller(
            account: account, device: DeviceID("device"), app: AppID("app"),
            entitlements: Entitlements(store: nil, containers: []), expires: Timestamp(milliseconds: 0), keyID: "key",
            appToken: appToken)
        let owner = Owner("account")
        return Ticket(
            id: BulkTicket(using: &generator), key: key, caller: caller, at: .ofTest(owner),
            sealer: try ChunkSealer(key: [UInt8](repeating: 1, count: 32), owner: owner), upload: nil,
            lifetime: lifetime)
    }

    /// An app has a partition for each container; the account's part of its plan is one.
    @Test func whatAnAccountWritesToAnAppIsOneRow() {
        let (account, app) = (AccountID("acct_a"), Owner(AppID("T.app")))
        let rows = [1, 2, 700].map { WrittenStore.place(of: account, to: app, in: $0) }
        #expect(Set(rows.map { "\($0.owner) \($0.partition)" }).count == 1)
        let own = WrittenStore.place(of: account, to: Owner(account), in: 3)
        #expect(own.owner == Owner(account) && own.partition == 3)
        #expect(rows[0].owner != own.owner)
        #expect(WrittenStore.place(of: AccountID("acct_b"), to: app, in: 1).owner != rows[0].owner)
    }

    /// Whoever has no account takes half of the places at most, however many keys and addresses there are.
    @Test func halfOfTheTicketsAreKeptForAccounts() throws {
        var table = TicketTable(countMax: 10)
        for number in 0..<10 {
            let stranger = try ticket(
                UInt64(number), key: key(UInt8(number)), account: "address \(number)", appToken: "token")
            #expect((table.add(stranger, now: .zero) != nil) == (number < 5), "\(number)")
        }
        for number in 10..<15 {
            #expect(table.add(try ticket(UInt64(number), key: key(UInt8(number))), now: .zero) != nil)
        }
        #expect(table.count == 10)
        // Those whose time is over make room.
        let next = try ticket(20, key: key(20), account: "address", appToken: "token")
        #expect(table.add(next, now: .seconds(61)) != nil)
    }

    @Test func aKeyHasItsNewestTickets() throws {
        var table = TicketTable(countMax: 100)
        let own = try key(1)
        let tickets = try (0..<20).map { try ticket(UInt64($0), key: own) }
        var removed: [BulkTicket] = []
        for ticket in tickets { removed += table.add(ticket, now: .zero)?.map(\.id) ?? [] }
        #expect(removed == tickets.prefix(4).map(\.id))
        #expect(table.count == TicketTable.perKeyMax)
        #expect(table.find(tickets[3].id, of: own, now: .zero) == nil)
        #expect(table.find(tickets[19].id, of: own, now: .seconds(59)) != nil)
        #expect(table.find(tickets[19].id, of: own, now: .seconds(60)) == nil)
        let other = try key(2)
        #expect(table.find(tickets[19].id, of: other, now: .zero) == nil)
    }

    @Test func anAccountsManyKeysDoNotFillTheTable() throws {
        var table = TicketTable(countMax: 2000)
        for number in 0..<3000 {
            let bytes = (0..<32).map { UInt8(truncatingIfNeeded: $0 < 4 ? number >> ($0 * 8) : 1) }
            let own = try #require(PublicKey(bytes: bytes))
            let removed = try table.add(ticket(UInt64(number), key: own), now: .zero)
            #expect(removed?.count == (number < TicketTable.perAccountMax ? 0 : 1))
        }
        #expect(table.count == TicketTable.perAccountMax)
        let other = try table.add(ticket(5000, key: key(2), account: "other"), now: .zero)
        #expect(other?.count == 0)
    }

    @Test func aFullTableTakesInWhoComesWhenOthersHaveRunOut() throws {
        var table = TicketTable(countMax: 3)
        for number in 0..<3 {
            let own = try key(UInt8(number))
            let ticket = try ticket(UInt64(number), key: own, lifetime: .seconds(Int64(10 + number)))
            let removed = table.add(ticket, now: .zero)
            #expect(removed?.count == 0)
        }
        let late = try ticket(9, key: key(9))
        let early = table.add(late, now: .zero)
        #expect(early == nil)
        let removed = table.add(late, now: .seconds(10))
        #expect(removed?.count == 1)
        #expect(table.count == 3)
    }

    @Test func eachHasItsTurn() {
        var turns = Turns<String, Int>()
        for number in 0..<5 { turns.add(number, of: "many") }
        turns.add(10, of: "one")
        func next(_ count: Int) -> [Int] {
            var rest = count
            return turns.next { _ in
                rest -= 1
                return rest >= 0
            }?.items ?? []
        }
        let taken = (0..<4).map { _ in next(2) }
        #expect(taken == [[0, 1], [10], [2, 3], [4]])
        #expect(turns.isEmpty)
    }
}

extension ContentPlace {
    /// Of no container.
    static func ofTest(_ owner: Owner) -> ContentPlace {
        ContentPlace(
            owner: owner, partition: 1, container: "", readable: [], room: .plan, app: AppID("app"),
            device: DeviceID("device"))
    }
}
