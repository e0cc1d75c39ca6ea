internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore

// MARK: Who is signed in

extension DeviceEngine {
    func freshKeys() throws(CloudError) -> KeyPair {
        do { return try makeKeyPair() } catch { throw CloudError(wrapping: error) }
    }

    /// The secrets of who is signed in.
    func loadSecrets() throws(CloudError) -> DeviceSecrets {
        guard let session else { return DeviceSecrets() }
        return try secrets.load(session.secrets)
    }

    /// Changes the secrets of who is signed in, if the body says so.
    ///
    /// - Throws: ``CloudError`` `.operationCancelled` when another process has signed in or out: those are not its.
    func changeSecrets(_ change: (inout DeviceSecrets) -> Bool) throws(CloudError) {
        guard let name = session?.secrets else { return }
        try local.write { database in
            guard try Facts(database).session?.secrets == name else { throw Self.otherSignIn }
            var kept = try secrets.load(name)
            if change(&kept) { try secrets.save(kept, as: name) }
        }
    }

    /// Changes what is kept of who is signed in.
    ///
    /// - Throws: ``CloudError`` `.operationCancelled` when another process has signed in or out.
    func changeSession(_ change: (inout SessionRecord, Database) throws -> Void) throws(CloudError) {
        let before = session
        let found: SessionRecord
        (found, session) = try local.write { database in
            let facts = Facts(database)
            guard let found = try facts.session, found.secrets == before?.secrets else { throw Self.otherSignIn }
            var session = found.stillEnded(as: before)
            try change(&session, database)
            try facts.setSession(session)
            return (found, session)
        }
        guard let before, found.isReached(otherwiseThan: before) else { return }
        // What another process has saved is here already when ``checkForeign()`` looks. Whoever changes the session is in
        // the middle of something.
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !stopped, session?.secrets == found.secrets else { return }
            reconnect(session: session)
        }
    }

    private static var otherSignIn: CloudError {
        CloudError(.operationCancelled, "Another process of this home has signed in or out.")
    }

    /// Everything is connected anew, for another session or other addresses.
    func reconnect(session: SessionRecord?) {
        self.session = session
        // Before the calls end: what fails with them is no news for what begins.
        for scope in scopes { scope.end() }
        closeClients()
        router.restart()
        for scope in scopes { scope.begin() }
        home.wantsChanged()
    }

    /// The addresses that the server published last.
    func learn(_ services: [SessionRecord.Service]) {
        guard !services.isEmpty, session.map({ $0.services != services }) == true else { return }
        func identity(_ services: [SessionRecord.Service]) -> SessionRecord.Service? {
            services.first { $0.service == ServiceName.identity.rawValue }
        }
        do throws(CloudError) {
            try changeSession { session, _ in
                let before = identity(session.services)
                session.services = services
                // Where identity is, the connection string has said, until it says another address than before; who
                // it is, it says itself.
                if let identity = identity(services) {
                    if let before, before.requests != identity.requests {
                        session.identity.requests = identity.requests
                    }
                    session.identity.publicKey = identity.publicKey
                    session.identity.nextPublicKey = identity.nextPublicKey
                }
            }
        } catch { return logger.error("session could not be saved", error) }
        reconnect(session: session)
    }
}

extension SessionRecord {
    /// With the end that the other has under the same secrets: it may not have been saved yet.
    fileprivate func stillEnded(as other: SessionRecord?) -> SessionRecord {
        guard let other, other.revoked, other.secrets == secrets, !revoked else { return self }
        var ended = self
        (ended.revoked, ended.wasCopied) = (true, other.wasCopied)
        (ended.revokedAt, ended.revokedBy) = (other.revokedAt, other.revokedBy)
        return ended
    }

    /// Whether the connections that were made for the other are not what this one asks for.
    fileprivate func isReached(otherwiseThan other: SessionRecord) -> Bool {
        services != other.services || identity != other.identity || revoked && !other.revoked
    }
}

// MARK: Other processes of this home

extension DeviceEngine {
    func pollForeign() {
        guard let interval = options.foreignPoll else { return }
        loop.schedule(after: home.interval(interval)) { [weak self] in
            guard let self, !self.stopped else { return }
            self.home.beat()
            self.pollForeign()
        }
    }

    /// This process's part in its home has changed.
    func restartScopes() {
        for scope in scopes { scope.end() }
        router.restart()
        checkForeign()
        for scope in scopes { scope.begin() }
    }

    func checkForeign() {
        // What other threads write is stamped by what was learned; nobody else looks whether that still holds.
        serverTime.check(loop.wallClock, monotonic: loop.monotonicNow)
        do throws(CloudError) {
            let version = try local.foreignVersion()
            guard version != foreignVersion else { return }
            let before = session
            let now = try local.read { try Facts($0).session }?.stillEnded(as: before)
            if now != before {
                session = now
                // What cannot be read now is looked for again: both are noted only when all is known.
                do throws(CloudError) { try tokens.load() } catch {
                    session = before
                    throw error
                }
            }
            foreignVersion = version
            local.changed.ring()
            if now != before {
                reconnect(session: now)
                if before?.accountID != now?.accountID || before?.signedIn != now?.signedIn { announceAccountChange() }
            }
            for scope in scopes { scope.foreignWrite() }
            home.read()
        } catch {
            logger.error("the home's database could not be polled", error)
        }
    }

    func announceAccountChange() {
        onEvent(.accountChanged(session))
        for scope in scopes { scope.emit(ChangeNotification(reason: .accountChange, changedKeys: [])) }
    }
}
