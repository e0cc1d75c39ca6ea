public import NephosCore

extension Session {
    /// All scopes of this home, of every service, by app. Each is followed from now on.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func scopes() async throws(CloudError) -> [Scope] {
        let ids: [ScopeID] = try await engine.perform { engine, completion in
            completion(Result { () throws(CloudError) in try engine.openAll() })
        }
        return ids.map { Scope(id: $0, session: self) }
    }

    /// One scope, also one that this home does not have yet. Needs no network. It is followed from now on.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when this release knows no such service, or none that devices follow.
    public func scope(_ id: ScopeID) async throws(CloudError) -> Scope {
        try await engine.perform { engine, completion in
            completion(Result { () throws(CloudError) in _ = try engine.scope(id) })
        }
        return Scope(id: id, session: self)
    }

    /// Rings after each change of this device's copy of anything, from the moment of the call.
    package func changes() -> AsyncStream<Void> { local.changed.listen() }
}
