import NephosBus
import NephosCore
import NephosStorage
import Testing

@testable import NephosServiceKit

/// Requests that cost much: accounts take turns, and each connection's are carried out in their order.
@Suite struct HeavyQueueTests {
    private func item(
        _ number: UInt64, of account: String, on connection: UInt64, charged: Int = 40, bytes: Int = 1000
    ) throws -> GroupItem {
        let caller = Caller(
            account: AccountID(account), device: DeviceID("device"), app: AppID("app"),
            entitlements: Entitlements(store: nil, containers: []), expires: Timestamp(milliseconds: 0), keyID: "key")
        let context = RequestContext(
            id: OperationID(high: 0, low: number), causeID: nil,
            peer: Peer(
                connection: connection, publicKey: try #require(PublicKey(bytes: [UInt8](repeating: 1, count: 32)))),
            caller: caller,
            now: Timestamp(milliseconds: 0))
        let item = GroupItem(work: .submission { _ in }, context: context, mutates: true)
        (item.charged, item.bytes) = (charged, bytes)
        return item
    }

    private func numbers(_ items: [GroupItem]) -> [OperationID] { items.map(\.context.id) }

    private func id(_ number: UInt64) -> OperationID { OperationID(high: 0, low: number) }

    @Test func accountsTakeTurnsHoweverManyOneHasSentBefore() throws {
        var queue = HeavyQueue()
        for number: UInt64 in 0..<40 { #expect(queue.add(try item(number, of: "greedy", on: 1))) }
        #expect(queue.add(try item(100, of: "modest", on: 2, charged: 20)))
        #expect(queue.add(try item(101, of: "modest", on: 2, charged: 20)))
        #expect(queue.count == 42 && queue.bytes == 42_000)
        #expect(numbers(queue.takeShare()) == [id(0)])
        #expect(numbers(queue.takeShare()) == [id(100)])
        #expect(numbers(queue.takeShare()) == [id(1)])
        #expect(numbers(queue.takeShare()) == [id(101)])
        for number: UInt64 in 2..<40 { #expect(numbers(queue.takeShare()) == [id(number)]) }
        #expect(queue.isEmpty && queue.bytes == 0 && queue.takeShare().isEmpty)
    }

    @Test func whatIsPutBackIsNext() throws {
        var queue = HeavyQueue()
        for number: UInt64 in 0..<4 { #expect(queue.add(try item(number, of: "a", on: 1, charged: 8))) }
        for number: UInt64 in 10..<14 { #expect(queue.add(try item(number, of: "b", on: 2, charged: 8))) }
        let share = queue.takeShare()
        #expect(numbers(share) == [id(0), id(10), id(1), id(11)])
        queue.putBack(Array(share.suffix(2)))
        #expect(numbers(queue.takeShare()) == [id(1), id(11), id(2), id(12)])
        #expect(numbers(queue.takeShare()) == [id(3), id(13)])
    }

    /// Under whichever token it comes.
    @Test func aConnectionsRequestsStayInTheirOrder() throws {
        var queue = HeavyQueue()
        #expect(queue.add(try item(0, of: "a", on: 1)))
        #expect(queue.add(try item(1, of: "b", on: 2)))
        #expect(queue.concerns(try item(2, of: "b", on: 1, charged: 1), besides: 0))
        #expect(queue.add(try item(2, of: "b", on: 1, charged: 1)))
        #expect(numbers(queue.takeShare()) == [id(0)])
        #expect(numbers(queue.takeShare()) == [id(1)])
        #expect(numbers(queue.takeShare()) == [id(2)])
        #expect(!queue.concerns(try item(3, of: "b", on: 1, charged: 1), besides: 0))
    }

    @Test func oneAccountDoesNotFillItForOthers() throws {
        var queue = HeavyQueue()
        let megabyte = 1 << 20
        var taken = 0
        for number: UInt64 in 0..<64 {
            if queue.add(try item(number, of: "greedy", on: number, bytes: megabyte)) { taken += 1 }
        }
        #expect(taken == 16)
        #expect(queue.add(try item(100, of: "modest", on: 100, bytes: megabyte)))
        // One by itself is taken however large it is.
        #expect(queue.add(try item(101, of: "other", on: 101, bytes: 20 * megabyte)))
    }
}
