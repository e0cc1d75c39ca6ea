internal import Foundation
package import NephosBus
package import NephosCore
package import NephosKit
internal import NephosServiceKit
internal import NephosWire

/// A device that moves content, at documents' real doors.
package final class TestBulk {
    package let client: TestClient
    package private(set) var accessToken: String
    private var refreshToken: String
    private var isRenewing = false
    package let account: AccountID
    package let device: DeviceID
    /// Which container's its uploads are said to be; empty: that is not said.
    package var container = ""
    /// Whose content it moves.
    package var service = ServiceName.documents
    /// Frames that came back to what ``send(_:)`` sent, in order; greetings left out.
    package private(set) var frames: [BulkFrame] = []
    private unowned let cloud: TestCloud
    private let name: String
    private var raw: [Int: any RequestSocket] = [:]
    private var bulk: BulkClient?

    /// Signs in under a key of its own.
    ///
    /// - Throws: ``CloudError``.
    package init(of cloud: TestCloud, account: String = TestCloud.accountName, app: String = "") throws {
        self.cloud = cloud
        client = try cloud.makeClient()
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "mover"
        request.appID = app
        let reply: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
        accessToken = reply.accessToken.token
        refreshToken = reply.refreshToken
        self.account = AccountID(reply.accountID)
        device = DeviceID(reply.device.deviceID)
        name = "bulk of \(device)"
    }

    /// One without an account, as far as an access token goes.
    package init(of cloud: TestCloud, _ client: TestClient, accessToken: String) {
        self.cloud = cloud
        self.client = client
        self.accessToken = accessToken
        refreshToken = ""
        (account, device) = (AccountID(""), DeviceID(""))
        name = "bulk of \(client.name)"
    }

    // MARK: As a client of the SDK

    /// A client, in place of the one before, which is lost as if the device had been killed.
    ///
    /// - Parameter open: How it gets its tickets; nil: from the service.
    package func connect(_ purpose: BulkClient.Purpose, open: BulkClient.Open? = nil) throws -> BulkClient {
        let made = Unshared(Holder())
        let (entry, endpoint) = try cloud.address(of: .bulk(service))
        let options = RequestSocketOptions(endpoints: [endpoint], serverKey: try entry.key, keys: client.keys)
        let asking = Unshared(self)
        let opening = Unshared(open)
        _ = try cloud.transport.startLoop(named: name) { loop in
            made.value.client = try BulkClient(
                loop: loop, socket: options, purpose: purpose, generator: SplitMix64(seed: 7)
            ) { purpose, done in
                if let open = opening.value { return open(purpose, done) }
                asking.value.open(purpose, on: loop, done)
            }
        }
        guard let client = made.value.client else { throw CloudError(.internalError, "The loop made no client.") }
        bulk = client
        return client
    }

    private final class Holder {
        var client: BulkClient?
        var socket: (any RequestSocket)?
    }

    private func open(
        _ purpose: BulkClient.Purpose, on loop: any BusLoop,
        _ done: @escaping (Result<BulkClient.Pass, CloudError>) -> Void
    ) {
        var request = WireOpenTransfer()
        request.transferID = Data(purpose.upload ?? [])
        request.uploadBytes = purpose.uploadBytes
        // Of records it is always named.
        if purpose.upload != nil || service != .documents { request.container = container }
        do {
            let answer = try client.begin(
                "OpenTransfer", request, at: .requests(service), accessToken: accessToken)
            wait(for: answer, on: loop, done)
        } catch {
            let failure = CloudError(wrapping: error)
            loop.schedule(after: .zero) { done(.failure(failure)) }
        }
    }

    private func wait(
        for answer: TestClient.Answer, on loop: any BusLoop,
        _ done: @escaping (Result<BulkClient.Pass, CloudError>) -> Void
    ) {
        loop.schedule(after: .milliseconds(1)) { [weak self] in
            guard let result = answer.result else {
                self?.wait(for: answer, on: loop, done)
                return
            }
            if case .failure(let error) = result, error.code == .tokenExpired { self?.renew(on: loop) }
            done(
                Result { try result.get().decode(WireOpenTransferReply.self) }
                    .mapError { CloudError(wrapping: $0) }
                    .map {
                        BulkClient.Pass(
                            ticket: Data($0.ticket).withUnsafeBytes { BulkTicket(bytes: $0) } ?? .none,
                            creditBytes: $0.creditBytes)
                    })
        }
    }

    /// A client of the SDK has another access token soon when one has run out.
    private func renew(on loop: any BusLoop) {
        guard !isRenewing else { return }
        var request = WireRefreshToken()
        request.refreshToken = refreshToken
        guard let answer = try? client.begin("RefreshToken", request, at: .requests(.identity)) else { return }
        isRenewing = true
        awaitRenewal(answer, on: loop)
    }

    private func awaitRenewal(_ answer: TestClient.Answer, on loop: any BusLoop) {
        loop.schedule(after: .milliseconds(1)) { [weak self] in
            guard let self else { return }
            guard let result = answer.result else { return awaitRenewal(answer, on: loop) }
            isRenewing = false
            guard let reply = try? result.get().decode(WireRefreshTokenReply.self) else { return }
            accessToken = reply.accessToken.token
            refreshToken = reply.refreshToken
        }
    }

    // MARK: As whatever says what it likes

    /// Sends a frame as it is, on the connection of this number, which is made if need be.
    package func send(_ frame: Frame, on number: Int = 0) throws { _ = try socket(number).send([frame]) }

    /// Ends the connection of this number; the next that is sent on it makes another.
    package func disconnect(_ number: Int) { raw.removeValue(forKey: number)?.close() }

    /// Forgets what has come back.
    package func clear() { frames = [] }

    private func socket(_ number: Int) throws -> any RequestSocket {
        if let socket = raw[number] { return socket }
        let (entry, endpoint) = try cloud.address(of: .bulk(service))
        let options = RequestSocketOptions(endpoints: [endpoint], serverKey: try entry.key, keys: client.keys)
        let made = Unshared(Holder())
        let onMessages = Unshared<([Message]) -> Void> { [weak self] messages in
            self?.frames += messages.map { BulkFrame($0[0]) }
                .filter { (try? $0.kind(contentBytesMax: BulkLimits.chunkBytesMax)) != .greeting }
        }
        _ = try cloud.transport.startLoop(named: "\(name) raw \(number)") { loop in
            made.value.socket = try loop.makeRequestSocket(options) { onMessages.value($0) }
        }
        guard let socket = made.value.socket else { throw CloudError(.internalError, "The loop made no socket.") }
        raw[number] = socket
        cloud.network.run(for: .milliseconds(20))
        return socket
    }
}
