import Bus
import Core
import Crypto
import ServiceKit
import Storage
import Testing

import struct Foundation.Data

/// The host as the service sees it, without a bus.
final class StubRuntime: ServiceRuntime {
    let roster: Roster
    let secrets: ServiceSecrets
    let operatorKey: PublicKey
    var submitted: [(any HandlerTransaction) throws -> Void] = []
    private(set) var counters: [String: Int] = [:]

    init() throws {
        let signing = Curve25519.Signing.PrivateKey()
        let operatorKey = try #require(PublicKey(bytes: [UInt8](repeating: 1, count: 32)))
        self.operatorKey = operatorKey
        roster = Roster(
            deployment: "test-deployment",
            services: [
                Roster.Entry(
                    service: "identity", publicKey: operatorKey.z85, requests: "tcp://127.0.0.1:7411",
                    events: "tcp://127.0.0.1:7412", publicRequests: "tcp://cloud.example:7411")
            ],
            operatorKey: operatorKey.z85,
            tokenKeys: ["k1": signing.publicKey.rawRepresentation.base64EncodedString()])
        secrets = ServiceSecrets(
            service: "identity", secretKey: operatorKey.z85,
            masterKeys: [Data(repeating: 9, count: 32).base64EncodedString()],
            historyKey: Data(repeating: 7, count: 16).base64EncodedString(),
            tokenSigningKey: signing.rawRepresentation.base64EncodedString(), tokenSigningKeyID: "k1")
        accountKeys = try AccountKeys(masterKeys: secrets.masterKeys)
    }

    var loop: any BusLoop { preconditionFailure("the handlers under test use no loop") }
    func submit(_ body: @escaping (any HandlerTransaction) throws -> Void) { submitted.append(body) }
    func call(
        _ service: ServiceName, _ method: String, body: Frame, causeID: OperationID?,
        then completion: @escaping (Result<Frame, CloudError>) -> Void
    ) {
        completion(.failure(CloudError(.serviceUnavailable, "There is no other service.")))
    }
    func admit(_ envelope: RequestEnvelope, of peer: Peer) throws(CloudError) -> (caller: Caller, budget: Budget?) {
        throw CloudError(.notAuthenticated, "Not used here.")
    }
    let accountKeys: AccountKeys
    private(set) var closing: [AccountID] = []
    func closeAccount(_ account: AccountID, in transaction: any HandlerTransaction) throws { closing.append(account) }
    var storage: StorageLedger { preconditionFailure("identity stores nothing for accounts") }
    func report(_ message: String, details: [String: String]) {}
    func count(_ counter: String, by amount: Int) { counters[counter, default: 0] += amount }
}
