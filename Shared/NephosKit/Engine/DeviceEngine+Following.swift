internal import NephosBus
package import NephosCore

extension DeviceEngine {
    /// Reaches the deployment that this device is signed in to at another address. The service's key says that it is the
    /// same deployment, so no password is needed. If it does not answer there, the former address stays.
    ///
    /// - Parameters:
    ///   - identity: The identity service, as a connection string names it.
    ///   - account: The account's name.
    ///   - completion: The session with its new address. Nil: this device is not signed in to that account of that
    ///     deployment, or its sign-in has ended; sign in.
    package func follow(
        _ identity: SessionRecord.Service, account: String, timeout: Duration,
        _ completion: @escaping (Result<SessionRecord?, CloudError>) -> Void
    ) {
        guard let former = session, former.signedIn, !former.revoked, former.isNamed(account),
            former.identity.publicKey == identity.publicKey
        else {
            loop.schedule(after: .zero) { completion(.success(nil)) }
            return
        }
        var isOver = false
        func end(_ result: Result<SessionRecord?, CloudError>) {
            guard !isOver else { return }
            isOver = true
            if case .success(.some) = result { return completion(result) }
            do throws(CloudError) { try move(from: identity.requests, to: former.identity.requests) } catch {
                return completion(.failure(error))
            }
            completion(result)
        }
        do throws(CloudError) { try move(from: former.identity.requests, to: identity.requests) } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
            return
        }
        // A token in hand proves nothing: the deployment has to answer.
        tokens.hasten()
        tokens.discardHeld(of: former.defaultApp)
        loop.schedule(after: timeout) {
            end(.failure(CloudError(.networkUnavailable, "Nobody answers at this address.")))
        }
        tokens.token(for: former.defaultApp) { [weak self] result in
            guard let self, !stopped else { return }
            switch result {
            case .success: end(.success(session))
            case .failure(let error):
                let isEnded = [.notAuthenticated, .tokenNotBound, .deviceRevoked, .notSignedIn].contains(error.code)
                end(isEnded ? .success(nil) : .failure(error))
            }
        }
    }

    /// Changes where identity is, unless it was told another address meanwhile.
    private func move(from former: [String], to requests: [String]) throws(CloudError) {
        guard former != requests, session?.identity.requests == former else { return }
        try changeSession { session, _ in session.identity.requests = requests }
        reconnect(session: session)
    }
}
