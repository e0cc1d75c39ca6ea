internal import NephosBus
package import NephosCore
internal import NephosWire

/// A home without an account, which reads one container's public database by what its app ships.
///
/// It is kept as a session of nobody's: what it may ask for is in its tokens.
extension DeviceEngine {
    /// - Parameters:
    ///   - identity: The identity service.
    ///   - appToken: What the app ships.
    package func usePublic(
        _ identity: SessionRecord.Service, appToken: String, timeout: Duration,
        _ completion: @escaping (Result<SessionRecord, CloudError>) -> Void
    ) {
        do throws(CloudError) {
            try local.requireWritable()
            try requireNoAccount(session)
            try local.read { try requireNothingUnsent($0) { $0.isPublic } }
            var keys = DeviceSecrets()
            keys.keys = try freshKeys()
            keys.appToken = appToken
            let client: SignInClient
            do { client = try SignInClient(self, identity, keys: keys) } catch { throw CloudError(wrapping: error) }
            var wire = WireIssuePublicToken()
            wire.secret = appToken
            client.call(wire, timeout: timeout, id: makeOperationID()) { [weak self] reply in
                client.close()
                guard let self, !stopped else { return }
                completion(
                    reply.result.decoded(as: WireIssuePublicTokenReply.self).flatMap { reply in
                        Result { () throws(CloudError) in try self.begin(reply, identity, keys) }
                    })
            }
        } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
        }
    }

    private func requireNoAccount(_ session: SessionRecord?) throws(CloudError) {
        guard let session, session.signedIn, !session.isPublic else { return }
        throw CloudError(
            .constraintViolation, "This home has an account, which may read the public database. Sign out first.",
            details: ["account": session.accountName])
    }

    private func begin(
        _ reply: WireIssuePublicTokenReply, _ identity: SessionRecord.Service, _ keys: DeviceSecrets
    ) throws(CloudError) -> SessionRecord {
        let app = reply.accessToken.app
        var next = SessionRecord(
            accountID: SessionRecord.publicAccount, accountName: "", deviceID: DeviceID(""), deviceName: "",
            identityToken: "", signedIn: true, defaultApp: AppID(app.appID), storeIDs: [:],
            services: addresses(reply.services), identity: identity, revoked: false)
        next.setContainers(app.containerIds, of: AppID(app.appID))
        next.setOwners(app)
        next.secrets = makeOperationID().description
        var kept = keys
        kept.accessTokens = [app.appID: tokens.stamp(reply.accessToken)]
        let (session, secrets) = (next, kept)
        let previous = try local.write { database in
            let previous = try Facts(database).session
            // Somebody may have signed in while the server was asked.
            try requireNoAccount(previous)
            try requireNothingUnsent(database) { $0.isPublic }
            if let previous, !previous.isPublic {
                try ScopeTransaction.removeAll(of: previous.accountID, database)
                try Facts(database).setHasContentsLeft(true)
            }
            try change(to: session, secrets, database)
            return previous
        }
        try switched(to: session)
        announce(session, after: previous)
        return session
    }
}

extension SessionRecord {
    /// Under which what is copied without an account lies in the home's tables. No account is called so.
    static let publicAccount = AccountID("public")

    /// Whether it has no account.
    package var isPublic: Bool { accountID == Self.publicAccount }
}
