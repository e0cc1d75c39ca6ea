public import ServiceKit
internal import Wire

extension KeyValueService {
    public func register(on router: inout Router) {
        // Its reply can hold a value, so the handler stores it itself, sealed.
        router.write(
            WirePushKeys.self, bytesMax: PushLimits.bytesMax, remembersReply: false, makesRoom: true,
            rows: PushRequest.rows(in:), decoding: PushRequest.init(decoding:), encoding: pushKeys)
        router.read(WirePullKeys.self, reserves: PullRule.reserves, encoding: pullKeys)
        router.read(WireListKeyHistory.self, reserves: PullRule.reserves, listKeyHistory)
        router.read(WireListKeyDigests.self, reserves: RequestCost.heavy, listKeyDigests)
    }
}
