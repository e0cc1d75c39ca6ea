public import NephosServiceKit
internal import NephosWire

extension KeyValueService {
    public func register(on router: inout Router) {
        // Its reply can hold a value, so the handler stores it itself, sealed.
        router.write(
            WirePushKeys.self, bytesMax: PushLimits.bytesMax, remembersReply: false, makesRoom: true,
            rows: PushRequest.rows(in:), decoding: PushRequest.init(decoding:), encoding: pushKeys)
        router.write(WireResolveKeyConflicts.self, makesRoom: true, resolveKeyConflicts)
        router.bulk(
            WireListKeyHistory.self, reserves: Self.historyReserves, begin: beginListKeyHistory,
            read: Self.readKeyHistory, finish: { $0 })
        router.bulk(
            WireListKeyDigests.self, reserves: Self.historyReserves, begin: beginListKeyDigests,
            read: Self.readKeyDigests,
            finish: finish)
    }
}
