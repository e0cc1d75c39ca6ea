internal import NephosCore
internal import NephosServiceKit

/// Who asks to follow a scope: what a service's answer may depend on.
struct ScopeReader: Hashable {
    /// Nil: every account that has the app.
    var account: AccountID?
    var app: AppID
    /// Of the app's entitlements.
    var version: UInt64
    /// Those of the app, or less.
    var capabilities: Entitlements.Capabilities
    /// Of whoever has no account: the one container that it may look at.
    var container: ItemName?

    init(_ caller: Caller, _ audience: ScopeAudience = .reader) {
        account = audience == .app ? nil : caller.account
        app = caller.app
        version = caller.entitlements.version
        capabilities = caller.entitlements.capabilities
        container = caller.isPublic ? caller.entitlements.containers.first ?? "" : nil
    }
}

/// What the services have said of who may follow their scopes, so that they are not asked again for each device.
///
/// Bounded: at its limit the older half is let go of, and asked for again when needed.
struct AccessCache {
    private let limit: Int
    private var recent: [ScopeKey: Set<ScopeReader>] = [:]
    private var older: [ScopeKey: Set<ScopeReader>] = [:]
    private var recentCount = 0

    init(limit: Int = 200_000) { self.limit = limit }

    /// Whether the service has said that the caller may follow the scope.
    func includes(_ key: ScopeKey, _ caller: Caller) -> Bool {
        let readers = [ScopeReader(caller), ScopeReader(caller, .app)]
        return [recent[key], older[key]].contains { known in readers.contains { known?.contains($0) == true } }
    }

    mutating func note(_ key: ScopeKey, _ caller: Caller, _ audience: ScopeAudience) {
        guard recent[key, default: []].insert(ScopeReader(caller, audience)).inserted else { return }
        recentCount += 1
        guard recentCount > limit / 2 else { return }
        older = recent
        recent = [:]
        recentCount = 0
    }

    /// Others may follow the scope than before.
    mutating func forget(_ key: ScopeKey) {
        recentCount -= recent.removeValue(forKey: key)?.count ?? 0
        older[key] = nil
    }

    /// Of a service that was restored: what it has said may be of a lost future.
    mutating func forget(_ service: ServiceName) {
        recent = recent.filter { $0.key.service != service }
        recentCount = recent.values.reduce(0) { $0 + $1.count }
        older = older.filter { $0.key.service != service }
    }
}
