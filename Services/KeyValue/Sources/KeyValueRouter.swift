public import ServiceKit
internal import Wire

extension KeyValueService {
    public func register(on router: inout Router) {
        // Its reply can hold a value, so the handler stores it itself, sealed.
        router.write(
            WirePushKeys.self, bytesMax: PushLimits.bytesMax, remembersReply: false,
            decoding: PushRequest.init(decoding:), encoding: pushKeys)
        router.read(WirePullKeys.self, pullKeys)
        router.read(WireListKeyHistory.self, listKeyHistory)
        router.read(WireListKeyDigests.self, listKeyDigests)
    }
}
