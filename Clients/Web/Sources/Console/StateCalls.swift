internal import Foundation
internal import NephosCore
internal import NephosKit

/// The calls of the page of sync status: pending and rejected changes with their reasons.
enum StateCalls {
    static let methods: [String: ConsoleMethod] = [
        "state.list": ConsoleMethod(list), "state.dismiss": ConsoleMethod(dismiss),
    ]

    private struct Listed: Encodable {
        struct Pending: Encodable {
            var names: [String]
            var state: String
            var reason: String
            var attempts: Int
            var since: UInt64
            var nextAttempt: UInt64?
        }
        struct Rejected: Encodable {
            var name: String
            var message: String
            var time: UInt64
        }
        struct Place: Encodable {
            var app: String
            var service: String
            var name: String
            var title: String
            var inSync: Bool
            /// Changes of other devices arrive at once.
            var isConnected: Bool
            var fetched: UInt64?
            var problem: String?
            var pending: [Pending]
            var rejected: [Rejected]
            var conflicts: Int
        }
        var scopes: [Place]
    }

    private static func list(_ user: WebUser) async throws -> Listed {
        var places: [Listed.Place] = []
        for scope in try await user.session.scopes() {
            let status = try await scope.status()
            places.append(
                Listed.Place(
                    app: scope.id.app.rawValue, service: scope.id.service.rawValue, name: scope.id.name,
                    title: scope.title, inSync: status.isInSync, isConnected: status.isFollowing,
                    fetched: status.fetched?.milliseconds, problem: status.problem?.message,
                    pending: status.pending.map { pending in
                        Listed.Pending(
                            names: pending.keys.map { "\($0)" }, state: pending.state.rawValue,
                            reason: pending.reason, attempts: pending.attempts, since: pending.since.milliseconds,
                            nextAttempt: pending.nextAttempt?.milliseconds)
                    },
                    rejected: status.refused.map { rejected in
                        Listed.Rejected(
                            name: rejected.key.rawValue, message: rejected.error.message,
                            time: rejected.at.milliseconds)
                    },
                    conflicts: try await scope.conflictCount()))
        }
        return Listed(scopes: places)
    }

    private struct Dismiss: Decodable {
        var app: String
        var service: String
        var name: String
        /// Rejected changes; nil: all of the scope.
        var rejected: [String]?
    }

    private static func dismiss(_ user: WebUser, _ arguments: Dismiss) async throws -> ConsoleDone {
        let id = ScopeID(
            app: AppID(arguments.app), service: ServiceName(arguments.service),
            name: arguments.name)
        let scope = try await user.session.scope(id)
        try await scope.dismissRefused(arguments.rejected.map { $0.map { ItemName($0) } })
        return ConsoleDone()
    }
}
