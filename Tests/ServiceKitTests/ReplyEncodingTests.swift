import Foundation
import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@Suite struct ReplyEncodingTests {
    @Test(arguments: [0, 1, 127, 128, 300, 20_000])
    func successIsEncodedAsTheGeneratedCodeWouldDoIt(bodyBytes: Int) throws {
        let body = [UInt8](repeating: 7, count: bodyBytes)
        let budgets = [
            nil, Budget(capacity: 1000, remaining: 999, refill: .milliseconds(10)),
            Budget(capacity: 0, remaining: 0, refill: .zero),
            Budget(capacity: 1 << 40, remaining: 1, refill: .seconds(1)),
        ]
        for id in [nil, OperationID(high: 0x0102_0304_0506_0708, low: 0x090a_0b0c_0d0e_0f10)] {
            for budget in budgets {
                var wire = WireReply()
                if let id { wire.requestID = Data(id.bytes) }
                wire.body = Data(body)
                if let budget {
                    wire.budget.capacity = UInt32(clamping: budget.capacity)
                    wire.budget.remaining = UInt32(clamping: budget.remaining)
                    wire.budget.refillMicroseconds = UInt64(budget.refill.nanoseconds / 1000)
                }
                let expected: [UInt8] = try wire.serializedBytes()
                let message = ReplyEnvelope(id: id, result: .success(Frame(body)), budget: budget).encoded()
                #expect(message.map(\.bytes) == [expected])
            }
        }
    }
}
