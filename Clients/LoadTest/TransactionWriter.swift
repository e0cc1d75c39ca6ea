import NephosBus
import NephosCore
import NephosWire

/// The places in the store's feed that acknowledged transactions were given.
///
/// A server that lost one gives its place away again.
final class AcknowledgedPlaces {
    private var places: Set<UInt64> = []

    /// False: another transaction was acknowledged with this place.
    func take(_ place: UInt64) -> Bool { places.insert(place).inserted }
}

/// A writer of transactions: three keys that always change together, one
/// transaction in flight, and what was acknowledged of them.
///
/// Goes round several such groups of keys, so that its last few transactions
/// can all be seen. Renews its tokens as a device does, so that identity is under load as well.
final class TransactionWriter {
    /// Transactions after which a group of keys is written again.
    static let groupCount = 5
    static let keysPerTransaction = 3

    /// The keys of a writer's transaction.
    static func keys(of writer: Int, number: Int) -> [String] {
        (0..<keysPerTransaction).map { "\(writer)-\(number % groupCount)-\($0)" }
    }

    /// A transaction must be answered within this, whatever is killed meanwhile.
    private static let patience: Duration = .seconds(60)

    let index: Int
    /// The number of the last transaction that the server said it has stored.
    private(set) var acknowledged = 0
    /// The number of the last that was sent.
    private(set) var sent = 0
    private(set) var error: CloudError?
    var isIdle: Bool { sent == acknowledged }

    private let loop: any BusLoop
    private let store: String
    private let keyValue: RequestClient
    private let identity: RequestClient
    private let lifetime: Duration
    private var accessToken: String
    private var refreshToken: String
    private let places: AcknowledgedPlaces
    private var isWriting = true

    init(
        index: Int, loop: any BusLoop, enrolment: Enrolment, device: LoadDevice, places: AcknowledgedPlaces,
        tokenLifetime: Duration
    ) throws {
        self.places = places
        self.index = index
        self.loop = loop
        store = enrolment.store
        func client(_ address: ServerAddress) throws -> RequestClient {
            try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(
                    endpoints: [address.endpoint], serverKey: address.key, keys: device.keys))
        }
        keyValue = try client(enrolment.keyValue)
        identity = try client(enrolment.identity)
        accessToken = device.accessToken
        refreshToken = device.refreshToken
        lifetime = tokenLifetime
        // Not all at once.
        // The first were signed in seconds before the last, and their tokens are near their end.
        renew(after: lifetime * Double.random(in: 0...0.1))
        write()
    }

    /// Lets the transaction in flight finish, and sends no other.
    func pause() { isWriting = false }

    func resume() {
        isWriting = true
        if isIdle { write() }
    }

    private func write() {
        guard isWriting, error == nil else { return }
        sent += 1
        let number = sent
        let now = loop.wallClock.now
        var push = WirePushKeys()
        push.storeID = store
        push.writes = Self.keys(of: index, number: number).map { key in
            var write = WireKeyWrite()
            write.key = key
            write.value = WirePropertyValue(.integer(Int64(number)))
            write.timestamp = now.milliseconds << 16 | UInt64(number & 0xffff)
            return write
        }
        send(Frame(encoding: push), number, id: nil)
    }

    private func send(_ body: Frame, _ number: Int, id: OperationID?) {
        keyValue.call("PushKeys", body: body, accessToken: accessToken, timeout: Self.patience, id: id) {
            [weak self] reply in
            guard let self else { return }
            switch reply.result.decoded(as: WirePushKeysReply.self) {
            case .success(let stored):
                guard places.take(stored.token.sequence) else {
                    error = CloudError(
                        .constraintViolation, "An acknowledged write is gone: its place in the feed was given away.",
                        details: ["sequence": "\(stored.token.sequence)"])
                    return
                }
                acknowledged = number
                write()
            case .failure(let failure) where failure.code == .tokenExpired:
                // The renewal waits for identity to come back; so does the same operation.
                loop.schedule(after: .milliseconds(100)) { [weak self] in self?.send(body, number, id: reply.id) }
            case .failure(let failure): error = failure
            }
        }
    }

    private func renew(after delay: Duration) {
        loop.schedule(after: delay) { [weak self] in
            guard let self, error == nil else { return }
            var request = WireRefreshToken()
            request.refreshToken = refreshToken
            request.appID = store
            identity.call("RefreshToken", body: Frame(encoding: request), timeout: Self.patience) { [weak self] reply in
                guard let self else { return }
                switch reply.result.decoded(as: WireRefreshTokenReply.self) {
                case .success(let tokens):
                    accessToken = tokens.accessToken.token
                    refreshToken = tokens.refreshToken
                    renew(after: lifetime / 2)
                case .failure(let failure): error = failure
                }
            }
        }
    }
}
