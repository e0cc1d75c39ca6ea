import Bus
import Core
import Foundation
import SwiftProtobuf
import Testing
import Wire

@Suite struct ReplyEncodingTests {
    @Test(arguments: [0, 1, 127, 128, 300, 20_000])
    func successIsEncodedAsTheGeneratedCodeWouldDoIt(bodyBytes: Int) throws {
        let body = [UInt8](repeating: 7, count: bodyBytes)
        for id in [nil, OperationID(high: 0x0102_0304_0506_0708, low: 0x090a_0b0c_0d0e_0f10)] {
            var wire = WireReply()
            if let id { wire.requestID = Data(id.bytes) }
            wire.body = Data(body)
            let expected: [UInt8] = try wire.serializedBytes()
            let message = ReplyEnvelope(id: id, result: .success(Frame(body))).encoded()
            #expect(message.map(\.bytes) == [expected])
        }
    }
}
