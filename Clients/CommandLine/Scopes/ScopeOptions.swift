import ArgumentParser
import NephosCore
import NephosKit

/// Which of the things that this device keeps in step a command is about.
struct ScopeOptions: ParsableArguments {
    @OptionGroup var device: DeviceOptionGroup

    @Option(name: .long, help: "Only this app (default: every app that this device has used).")
    var app: String?
    @Option(name: .long, help: "Only this service, such as keyvalue (default: all).")
    var service: String?
    @Option(
        name: .long,
        help: "Only this container, zone (CONTAINER/ZONE) or public database, as \"name\" in --json (default: all).")
    var name: String?

    /// Whether nothing was named.
    var isAll: Bool { app == nil && service == nil && name == nil }

    /// - Parameter limit: How long to wait for the server, where it has to be asked about the app.
    /// - Throws: ``CloudError`` `.notSignedIn` when there is nothing, and nobody ever signed in.
    func withScopes<Result: Sendable>(
        within limit: Duration, _ body: ([Scope], Session) async throws -> Result
    ) async throws -> Result {
        try await device.withSession { session in
            if let left = try await session.leftUnsent { Standard.error("nephos: \(left.text)") }
            return try await body(try await scopes(in: session, within: limit), session)
        }
    }

    func scopes(in session: Session, within limit: Duration) async throws -> [Scope] {
        let all = try await session.scopes()
        let meant = all.filter { scope in
            (app.map { scope.id.app.rawValue == $0 } ?? true)
                && (service.map { scope.id.service.rawValue == $0 } ?? true)
                && (name.map { scope.id.name == $0 } ?? true)
        }
        guard meant.isEmpty else { return meant }
        let account = try session.requireAccount()
        // That there is no such app comes before what it would have.
        if let app, !all.contains(where: { $0.id.app.rawValue == app }), service != nil || name != nil {
            let store = try await session.scope(ScopeID(app: AppID(app), service: .keyValue))
            try await store.requireKnown(to: account, within: limit)
        }
        guard let app, name == nil else {
            throw CloudError(
                .unknownItem, "This device keeps nothing in step that is called so. See: nephos status",
                details: ["app": app, "service": service, "name": name].compactMapValues(\.self))
        }
        let id = ScopeID(app: AppID(app), service: service.map { ServiceName($0) } ?? .keyValue)
        let scope = try await session.scope(id)
        try await scope.requireKnown(to: account, within: limit)
        return [scope]
    }
}

extension Scope {
    /// As a person reads it.
    var label: String {
        inLine("\(id.app)" + (title.isEmpty ? "" : "/\(title)")) + " (\(id.service))"
    }

    /// What says in JSON which it is.
    var names: [ItemName: PropertyValue] {
        var names: [ItemName: PropertyValue] = [
            "app": .string(id.app.rawValue), "service": .string(id.service.rawValue),
        ]
        if !id.name.isEmpty { names["name"] = .string(id.name) }
        return names
    }

    /// How options name it, where it is not the one that is meant by itself.
    func option(_ session: Session) -> String {
        ShellCommand.options(
            app: id.app, isDefault: (try? session.account)??.defaultApp == id.app, home: session.home.path)
    }

    /// The same, where there is more than one of the app.
    func options(_ session: Session) -> String {
        option(session) + " --service=\(ShellCommand.word(id.service.rawValue))"
            + (id.name.isEmpty ? "" : " --name=\(ShellCommand.word(id.name))")
    }

    /// Asks the server about an app that this device has never used, so that nothing waits for one that is mistyped.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement` when there is none; `.networkUnavailable` or
    ///   `.deadlineExceeded` when that cannot be known now.
    func requireKnown(to account: SessionRecord, within limit: Duration) async throws {
        let details = [
            "app": id.app.rawValue, "used_here": account.storeIDs.keys.sorted().joined(separator: ", "),
        ]
        do { try await waitUntilCurrent(timeout: limit, isImpatient: true) } catch {
            switch ExitStatus.of(error) {
            case .refused where error.code == .missingEntitlement:
                throw CloudError(
                    .missingEntitlement, "There is no such app, or this account may not use it. Nothing was kept.",
                    details: details)
            case .unreachable:
                throw CloudError(
                    error.code,
                    "This device has never used this app, and cannot ask about it now. Nothing was kept. Check its name, or try again later.",
                    details: details)
            default: throw error
            }
        }
    }
}

extension Sequence where Element == Scope {
    /// Looks at all of them at the same time, and keeps their order. What is found out meanwhile to be there no more, such
    /// as a zone that another device has deleted, is left out.
    func each<Result: Sendable>(
        in session: Session, _ body: @escaping @Sendable (Scope) async throws -> Result
    ) async throws -> [Result] {
        let results = await withTaskGroup(of: (Int, Swift.Result<Result, any Error>).self) { group in
            for (index, scope) in enumerated() {
                group.addTask {
                    do { return (index, .success(try await body(scope))) } catch { return (index, .failure(error)) }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }.sorted { $0.0 < $1.0 }.map(\.1)
        }
        let left = Set(try await session.scopes().map(\.id))
        return try zip(self, results).compactMap { scope, result in
            // One that was named alone may be none that is kept in step.
            results.count == 1 || left.contains(scope.id) ? try result.get() : nil
        }
    }
}

/// What a command says of several scopes, under a heading each where there is more than one.
func sections(_ parts: [(scope: Scope, text: String)]) -> String {
    guard parts.count > 1 else { return parts.first?.text ?? "" }
    return parts.map { part in
        ([part.scope.label] + part.text.split(separator: "\n", omittingEmptySubsequences: false).map { "  \($0)" })
            .joined(separator: "\n")
    }.joined(separator: "\n")
}

extension Scope {
    /// The item's name as its scope lists it. Paths of files may be typed as `docs` takes them: `a.txt` is
    /// `/Documents/a.txt`.
    func itemName(typed text: String) -> String {
        // An item in a folder that is not here is listed by its id.
        guard id.service == .documents, DocumentID(text) == nil else { return text }
        return (try? DocumentPath(text).text) ?? text
    }
}
