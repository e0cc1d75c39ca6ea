internal import Bus
internal import Core
internal import ServiceKit
internal import Wire

private import struct Foundation.Data

/// Asks the services for heads that are not known yet. Who asks for the same
/// scope meanwhile shares the answer.
final class HeadLoader {
    typealias Completion = (Result<[(ScopeKey, HeadCache.Head)], CloudError>) -> Void

    private let host: any ServiceRuntime
    private var waiting: [ScopeKey: [(Result<HeadCache.Head, CloudError>) -> Void]] = [:]

    init(host: any ServiceRuntime) { self.host = host }

    /// Loads the heads; the completion runs once, when all are there or one has failed.
    func load(_ keys: [ScopeKey], _ completion: @escaping Completion) {
        var loaded: [(ScopeKey, HeadCache.Head)] = []
        var isDone = false
        for key in keys {
            load(key) { result in
                guard !isDone else { return }
                switch result {
                case .success(let head):
                    loaded.append((key, head))
                    guard loaded.count == keys.count else { return }
                    isDone = true
                    completion(.success(loaded))
                case .failure(let error):
                    isDone = true
                    completion(.failure(error))
                }
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
                            digest: [UInt8](reply.digests.first ?? Data())))
                } catch {
                    return .failure(error)
                }
            }
            for completion in self?.waiting.removeValue(forKey: key) ?? [] { completion(head) }
        }
    }
}
