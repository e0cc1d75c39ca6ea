private import Foundation
internal import NephosBus
internal import NephosCore

/// When the services' storage completes a group.
package enum StorageTurns: Hashable, Sendable {
    /// At once, as SQLite does.
    case atOnce
    /// In a later turn of the service's loop, after a time up to this each, before the group and after it: as a
    /// database would that is asked over a line.
    case later(upTo: Duration)

    /// ``atOnce``; or with `NEPHOS_STORAGE_DELAY=M` later, after up to so many milliseconds: so that all tests can be
    /// run like that.
    package static let ofEnvironment: StorageTurns =
        ProcessInfo.processInfo.environment["NEPHOS_STORAGE_DELAY"].flatMap { Int64($0) }.map {
            .later(upTo: .milliseconds($0))
        } ?? .atOnce
}

/// Lets the loop of a service go on between a group's beginning, its commit and its completion.
final class LateTurns {
    private weak var loop: (any BusLoop)?
    private let delayMax: Duration
    private var generator: SplitMix64
    private(set) var isUnderWay = false

    init(on loop: any BusLoop, upTo delayMax: Duration, seed: UInt64) {
        self.loop = loop
        self.delayMax = delayMax
        generator = SplitMix64(seed: seed)
    }

    func run<Value>(
        _ work: @escaping () throws -> Value, then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        precondition(!isUnderWay, "A group was begun while another is under way.")
        isUnderWay = true
        pass { [self] in
            let result = Result { try work() }
            pass { [self] in
                isUnderWay = false
                completion(result)
            }
        }
    }

    /// The loop may end before; then it never comes to it.
    private func pass(then action: @escaping () -> Void) {
        // Some are quick, so that what comes meanwhile is now much, now nothing.
        let delay = Bool.random(using: &generator) ? .zero : delayMax * Double.random(in: 0...1, using: &generator)
        loop?.schedule(after: delay, action)
    }
}
