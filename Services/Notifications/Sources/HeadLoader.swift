internal import Bus
internal import Core
internal import ServiceKit
internal import Wire

/// Asks the services for heads that are not known yet. Who asks for the same
/// scope meanwhile shares the answer.
final class HeadLoader {
    typealias Completion = (Result<[(ScopeKey, ChangeToken)], CloudError>) -> Void

    private let host: any ServiceRuntime
    private var waiting: [ScopeKey: [(Result<ChangeToken, CloudError>) -> Void]] = [:]

    init(host: any ServiceRuntime) { self.host = host }

    /// Loads the heads; the completion runs once, when all are there or one has failed.
    func load(_ keys: [ScopeKey], _ completion: @escaping Completion) {
        var loaded: [(ScopeKey, ChangeToken)] = []
        var isDone = false
        for key in keys {
            load(key) { result in
                guard !isDone else { return }
                switch result {
                case .success(let token):
                    loaded.append((key, token))
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

    private func load(_ key: ScopeKey, _ completion: @escaping (Result<ChangeToken, CloudError>) -> Void) {
        waiting[key, default: []].append(completion)
        guard waiting[key]?.count == 1 else { return }
        var request = WireReadHeads()
        request.accountID = key.account.rawValue
        request.scopes = [key.scope.rawValue]
        host.call(key.service, "ReadHeads", body: Frame(encoding: request), causeID: nil) { [weak self] result in
            let token = result.flatMap { frame -> Result<ChangeToken, CloudError> in
                do throws(CloudError) {
                    let heads = try frame.decode(WireReadHeadsReply.self).heads
                    return .success(heads.first.map { ChangeToken($0) } ?? .zero)
                } catch {
                    return .failure(error)
                }
            }
            for completion in self?.waiting.removeValue(forKey: key) ?? [] { completion(token) }
        }
    }
}
