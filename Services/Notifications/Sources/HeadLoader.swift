internal import Bus
internal import Core
internal import ServiceKit
internal import Wire

private import struct Foundation.Data

/// Asks the services for heads that are not known yet. Who asks for the same
/// scope meanwhile shares the answer.
final class HeadLoader {
    typealias Completion = ([(ScopeKey, HeadCache.Head)]) -> Void

    private let host: any ServiceRuntime
    private var waiting: [ScopeKey: [(Result<HeadCache.Head, CloudError>) -> Void]] = [:]

    init(host: any ServiceRuntime) { self.host = host }

    func isLoading(_ key: ScopeKey) -> Bool { waiting[key] != nil }

    /// How long a subscriber waits for heads. What comes later is known from then on.
    private static let patience: Duration = .seconds(2)

    /// Loads the heads; the completion runs once, with those that could be
    /// loaded: one service that does not answer keeps no others from being told.
    func load(_ keys: [ScopeKey], _ completion: @escaping Completion) {
        var loaded: [(ScopeKey, HeadCache.Head)] = []
        var left = keys.count
        var timer: (any LoopTimer)?
        func finish() {
            timer?.cancel()
            left = 0
            completion(loaded)
        }
        timer = host.loop.schedule(after: Self.patience) { if left > 0 { finish() } }
        for key in keys {
            load(key) { result in
                if case .success(let head) = result { loaded.append((key, head)) }
                guard left > 0 else { return }
                left -= 1
                if left == 0 { finish() }
            }
        }
    }

    private func load(_ key: ScopeKey, _ completion: @escaping (Result<HeadCache.Head, CloudError>) -> Void) {
        waiting[key, default: []].append(completion)
        guard waiting[key]?.count == 1 else { return }
        var request = WireReadHeads()
        request.accountID = key.account.rawValue
        request.scopes = [key.scope.rawValue]
        host.call(key.service, "ReadHeads", body: Frame(encoding: request), causeID: nil) { [weak self] result in
            let head = result.flatMap { frame -> Result<HeadCache.Head, CloudError> in
                do throws(CloudError) {
                    let reply = try frame.decode(WireReadHeadsReply.self)
                    return .success(
                        HeadCache.Head(
                            token: reply.heads.first.map { ChangeToken($0) } ?? .zero,
                            digest: reply.digests.first ?? Data()))
                } catch {
                    return .failure(error)
                }
            }
            for completion in self?.waiting.removeValue(forKey: key) ?? [] { completion(head) }
        }
    }
}
