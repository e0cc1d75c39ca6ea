internal import NephosBus
public import NephosCore
public import NephosStorage
public import NephosWire

private import struct Foundation.Data

/// What every service answers to those who follow it, besides ``ReadChanges``: where its feed stands, and who may
/// follow its scopes.
enum FeedMethods {
    static func register(_ service: any CloudService, on router: inout Router) {
        router.read(WireReadPositions.self, access: .service) { _, _, transaction in
            var reply = WireReadPositionsReply()
            reply.epoch = try transaction.position(ofPartition: 0).epoch
            reply.positions = try transaction.positions().map { partition, token in
                var position = WireReadPositionsReply.Position()
                position.partition = UInt32(partition)
                position.token = WireChangeToken(token)
                return position
            }
            return reply
        }
        router.read(WireReadHeads.self, access: .service) { [unowned service] request, _, transaction in
            var reply = WireReadHeadsReply()
            let reader = Caller(request.reader)
            for path in request.scopes {
                let name = ScopeName(Owner(request.owner), ItemName(path))
                reply.scopes.append(try scope(name, for: reader, of: service, in: transaction))
            }
            return reply
        }
    }

    private static func scope(
        _ name: ScopeName, for reader: Caller, of service: any CloudService, in transaction: any HandlerTransaction
    ) throws -> WireReadHeadsReply.Scope {
        var scope = WireReadHeadsReply.Scope()
        do {
            scope.audience = WireAudience(try service.presenter(of: name, for: reader, in: transaction).audience)
        } catch let error as CloudError where error.code == .missingEntitlement {
            return scope
        }
        let head = try transaction.head(name)
        scope.token = WireChangeToken(head.token.sequence == 0 ? .zero : head.token)
        scope.digest = Data(head.digest.markBytes)
        return scope
    }
}

extension WireAudience {
    init(_ audience: ScopeAudience) {
        switch audience {
        case .reader: self = .reader
        case .app: self = .app
        }
    }
}

extension Caller {
    /// As another service has checked its token.
    fileprivate convenience init(_ reader: WireReader) {
        self.init(
            account: AccountID(reader.accountID), device: DeviceID(reader.deviceID), app: AppID(reader.app.appID),
            entitlements: Entitlements(reader.app), expires: Timestamp(milliseconds: .max), keyID: "",
            appToken: reader.appToken.isEmpty ? nil : reader.appToken)
    }
}

extension WireReader {
    /// The caller, for the service that has the scope.
    public init(_ caller: Caller) {
        self.init()
        accountID = caller.account.rawValue
        deviceID = caller.device.rawValue
        app.appID = caller.app.rawValue
        app.version = caller.entitlements.version
        app.capabilities = caller.entitlements.capabilities.wire
        app.storeID = caller.entitlements.store?.rawValue ?? ""
        app.containerIds = caller.entitlements.containers.map(\.rawValue)
        appToken = caller.appToken ?? ""
    }
}

extension WireNotification {
    /// What a change of a scope is told with; whoever made it adds what they know.
    public init(_ service: ServiceName, _ change: ScopeChange) {
        self.init()
        self.service = service.rawValue
        owner = change.scope.owner.rawValue
        scope = change.scope.path.rawValue
        token = WireChangeToken(change.token)
        previousSequence = change.previousSequence
        digest = Data(change.digest.markBytes)
    }

    /// That what the service says of a scope besides its items is another.
    public init(infoOf scope: ScopeName, _ service: ServiceName, at head: ScopeHead) {
        self.init()
        self.service = service.rawValue
        owner = scope.owner.rawValue
        self.scope = scope.path.rawValue
        token = WireChangeToken(head.token)
        previousSequence = head.token.sequence
        digest = Data(head.digest.markBytes)
        infoChanged = true
    }
}
