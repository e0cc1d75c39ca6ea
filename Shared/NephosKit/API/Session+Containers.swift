internal import NephosBus
public import NephosCore

extension Session {
    /// One of the containers that an app lists; nil: the first. It is followed from now on.
    ///
    /// Needs no network, unless the app was never used on this device.
    ///
    /// - Parameters:
    ///   - id: The container's identifier; nil: the app's own.
    ///   - app: Nil: the app that signed in.
    /// - Throws: ``CloudError`` `.notSignedIn`; `.missingEntitlement` when the app lists no such container, or there is
    ///   no such app; else what keeps the server from telling (try again).
    public func container(_ id: String? = nil, app: AppID? = nil) async throws(CloudError) -> UbiquityContainer {
        let (found, account): (ScopeID, AccountID) = try await engine.perform { engine, completion in
            engine.findContainer(id, of: app, service: .documents, completion)
        }
        return UbiquityContainer(id: found.name, app: found.app, account: account, session: self)
    }

    /// The containers that an app lists, the default one first, as far as this device has heard.
    ///
    /// - Parameter app: Nil: the app that signed in.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func containers(app: AppID? = nil) throws(CloudError) -> [String] {
        guard let account = try account else { throw CloudError(.notSignedIn, "Sign in.") }
        return account.containers(of: app ?? account.defaultApp) ?? []
    }
}

extension DeviceEngine {
    /// Finds a container, and begins to follow what a service has of it.
    func findContainer(
        _ id: String?, of app: AppID?, service: ServiceName,
        _ completion: @escaping (Result<(ScopeID, AccountID), CloudError>) -> Void
    ) {
        guard let session, session.signedIn else {
            return completion(.failure(CloudError(.notSignedIn, "This home has no account signed in. Sign in.")))
        }
        let app = app ?? session.defaultApp
        if let found = listed(id, of: app) { return completion(open(found, of: app, service)) }
        // It may list it by now: the next token tells.
        tokens.token(for: app) { [weak self] result in
            guard let self, !stopped else { return }
            switch result {
            case .failure(let error): return completion(.failure(error))
            case .success(let token):
                if let found = listed(id, of: app) { return completion(open(found, of: app, service)) }
                tokens.discard(token, of: app)
            }
            tokens.token(for: app) { [weak self] result in
                guard let self, !stopped else { return }
                if case .failure(let error) = result { return completion(.failure(error)) }
                guard let found = listed(id, of: app) else {
                    return completion(.failure(notListed(id, of: app)))
                }
                completion(open(found, of: app, service))
            }
        }
    }

    private func listed(_ id: String?, of app: AppID) -> String? {
        let containers = session?.containers(of: app)
        guard let id else { return containers?.first }
        return containers?.first { $0.hasSameBytes(as: id) }
    }

    private func notListed(_ id: String?, of app: AppID) -> CloudError {
        let others = session?.containers(of: app) ?? []
        var details = ["app": app.rawValue]
        details["container"] = id
        if !others.isEmpty { details["containers"] = others.joined(separator: ", ") }
        return CloudError(
            .missingEntitlement,
            id == nil ? "The app lists no containers." : "The app lists no such container.", details: details)
    }

    private func open(
        _ container: String, of app: AppID, _ service: ServiceName
    ) -> Result<(ScopeID, AccountID), CloudError> {
        Result { () throws(CloudError) in
            guard let account = session?.accountID else { throw CloudError(.notSignedIn, "Sign in.") }
            let id = ScopeID(app: app, service: service, name: container)
            if session?.isPublic == true {
                // There is the public database alone, which is opened when it is used.
                guard service == .records else {
                    throw CloudError(
                        .notSignedIn, "Without an account there is the public database of records alone. Sign in.")
                }
                try local.prepare(RecordItems.migrations)
            } else {
                _ = try scope(id)
            }
            return (id, account)
        }
    }
}
