private import Foundation
package import NephosWire
private import SwiftProtobuf

/// A page of a key-value store, as tests look at it.
extension WireReadChangesReply {
    /// Its keys.
    package var items: [WireKeyValueItem] {
        get { changes.compactMap { try? WireKeyValueItem(serializedBytes: $0.body) } }
        set { changes = newValue.map { WireChange(key: $0) } }
    }

    package var usage: WireKeyValueUsage {
        get { (try? WireKeyValueUsage(serializedBytes: info)) ?? WireKeyValueUsage() }
        set { info = (try? newValue.serializedBytes()) ?? Data() }
    }
}

extension WireChange {
    /// A key of a store.
    package init(key item: WireKeyValueItem) {
        self.init()
        self.item = item.key
        deleted = !item.hasValue
        body = (try? item.serializedBytes()) ?? Data()
        sequence = item.sequence
    }
}
