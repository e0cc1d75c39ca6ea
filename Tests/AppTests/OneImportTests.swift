import NephosKit
import Testing

// This target depends on NephosKit alone, and this file imports nothing else of ours. That it builds is the test.

/// Names each type that the API's signatures have, and one member of each.
private struct Everything {
    var account: AccountID
    var app = AppID("com.example.notes")
    var audit: AuditEntry
    var blocker: Blocker { pending.blocker }
    var budget: Budget?
    var capacity: Int? { budget?.capacity }
    var change: ChangeNotification
    var clock: HybridTimestamp
    var code = CloudError.Code.quotaExceeded
    var connection: ConnectionString
    var device: DeviceID
    var digest: SetDigest
    var endpoint: String { connection.endpoint }
    var error = CloudError(.invalidArguments, "An app may make one.")
    var history: KeyHistoryEntry
    var item: KeyValueItem
    var key: PublicKey { connection.key }
    var limits = KeyValueLimits.standard
    var name: ItemName = "key"
    var number: UInt32 { code.number }
    var operation: OperationID
    var pending: StoreStatus.Pending
    var record: SessionRecord
    var refused: RefusedWrite
    var service = ServiceName.keyValue
    var since: Timestamp { pending.since }
    var store: StoreID
    var time: Timestamp { clock.time }
    var token: ChangeToken
    var value: PropertyValue? { item.value }
    var write: LocalWrite
    var texts: [String] { [account.rawValue, app.rawValue, device.rawValue, name.rawValue, store.rawValue] }
    var milliseconds: UInt64 { since.milliseconds }
    var sequence: UInt64 { token.sequence }
}

@Suite struct OneImportTests {
    @Test func valuesErrorsAndNamesAreAtHandWithOneImport() throws {
        let date = Date(timeIntervalSince1970: 0)
        let value: PropertyValue = ["a": [1, 2.5, true, "text", .data(Data([1])), .date(date)]]
        guard case .dictionary(let entries) = value, case .array(let elements)? = entries["a" as ItemName] else {
            return #expect(Bool(false), "It is a dictionary.")
        }
        #expect(elements.map(\.typeName) == ["integer", "real", "boolean", "string", "data", "date"])
        let error = #expect(throws: CloudError.self) { try ConnectionString("https://example.org") }
        #expect(error?.code == .invalidArguments && error?.code.retry == .never && error?.retryAfter == nil)
        #expect(KeyValueLimits.standard.valueBytesMax == 1 << 20 && PropertyValue.depthMax == 24)
        #expect(try [1, nil, 3] == PropertyValue(encoding: [1, nil, 3] as [Int?]).decoded())
    }
}
