internal import NephosCore
internal import NephosServiceKit
internal import NephosWire
private import SwiftProtobuf

/// What the service says of a record, of a zone, and of their ends, as it is sealed (``OwnWords``): so devices can offer
/// again what a restore has lost, and it is as it was.
extension OwnWords {
    /// - Parameter stamps: Those that the words have. Without gaps they are as they were before there were any, and what was
    ///   sealed then is known again.
    private init(_ deed: String, with stamps: [WireRecordStamp] = [], of name: ItemName, in scope: ScopeName) {
        self.init(.records, of: scope)
        let hasGaps = stamps.contains { !$0.gaps.isEmpty }
        add(hasGaps ? deed + " with gaps" : deed)
        add(name.utf8)
        guard hasGaps else { return }
        for stamp in stamps {
            add(Int64(stamp.gaps.count))
            for time in stamp.gaps { add(time) }
        }
    }

    /// - Parameter zone: The record's.
    init(_ record: WireRecord, named name: ItemName, in zone: ScopeName) throws {
        self.init("record", with: [record.created, record.modified], of: name, in: zone)
        add(record.type)
        add(record.parent)
        add(record.version)
        add(record.created)
        add(record.modified)
        add(Int64(record.fields.count))
        for field in record.fields { add(try field.serializedBytes() as [UInt8]) }
    }

    /// - Parameter version: The change tag that was deleted.
    init(
        deletionOf version: some Collection<UInt8>, type: String, by stamp: WireRecordStamp, of name: ItemName,
        in zone: ScopeName
    ) {
        self.init("deletion", with: [stamp], of: name, in: zone)
        add(version)
        add(type)
        add(stamp)
    }

    init(_ zone: WireRecordZone, named name: ItemName, isEnded: Bool = false, in database: ScopeName) {
        self.init(isEnded ? "end" : "zone", of: name, in: database)
        add(zone.zoneID)
        add(zone.created)
        add(zone.deviceID)
        add(zone.appID)
    }

    private mutating func add(_ stamp: WireRecordStamp) {
        add(stamp.time)
        add(stamp.accountID)
        add(stamp.deviceID)
        add(stamp.appID)
    }
}

extension WireRecordStamp {
    init(_ caller: Caller, at time: Int64) {
        self.init()
        self.time = time
        accountID = caller.account.rawValue
        deviceID = caller.device.rawValue
        appID = caller.app.rawValue
    }
}
