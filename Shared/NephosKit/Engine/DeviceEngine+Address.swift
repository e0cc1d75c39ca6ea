package import NephosCore

extension DeviceEngine {
    /// Goes over to another address of the deployment that this device is signed in to. The service's key proves that it is
    /// the same deployment, so no password is needed. Nothing is changed before that address has answered.
    ///
    /// - Parameters:
    ///   - identity: The identity service, as a connection string names it.
    ///   - account: The account's name.
    ///   - completion: The session with its new address. Nil: this device is not signed in to that account of that
    ///     deployment, or its sign-in has ended; sign in.
    package func updateAddress(
        _ identity: SessionRecord.Service, account: String, timeout: Duration,
        _ completion: @escaping (Result<SessionRecord?, CloudError>) -> Void
    ) {
        guard let session, session.signedIn, !session.revoked, session.isNamed(account),
            session.identity.publicKey == identity.publicKey
        else {
            loop.schedule(after: .zero) { completion(.success(nil)) }
            return
        }
        requireAnswer(of: identity, timeout: timeout) { [weak self] result in
            guard let self, !stopped else { return }
            do throws(CloudError) {
                try result.get()
                try changeSession { session, _ in session.identity.requests = identity.requests }
            } catch { return completion(.failure(error)) }
            reconnect(session: self.session)
            // With a new token come the addresses of the other services.
            tokens.hasten()
            tokens.discardHeld(of: session.defaultApp)
            tokens.token(for: session.defaultApp) { [weak self] result in
                guard let self, !stopped else { return }
                switch result {
                case .success: completion(.success(self.session))
                case .failure(let error):
                    let isEnded = [.notAuthenticated, .tokenNotBound, .deviceRevoked, .notSignedIn].contains(error.code)
                    completion(isEnded ? .success(nil) : .failure(error))
                }
            }
        }
    }
}
