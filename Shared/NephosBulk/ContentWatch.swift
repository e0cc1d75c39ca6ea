internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
private import Synchronization

/// Whether the folder of content is not there, as any thread may ask.
final class ContentPresence: Sendable {
    private let missing = Atomic(false)

    var isMissing: Bool {
        get { missing.load(ordering: .relaxed) }
        set { missing.store(newValue, ordering: .relaxed) }
    }
}

/// Looks now and then whether the folder of content is there, so that operators and devices are told of its loss although
/// nobody fetches anything; and hears of it from whatever reads.
///
/// On the service's loop only.
final class ContentWatch {
    private static let interval: Duration = .seconds(30)
    /// Between two times that the log says it.
    private static let tellInterval: Duration = .seconds(600)
    /// What of `CheckHealth` says it.
    private static let counter = "content.missing"

    private unowned let transfers: Transfers
    /// As it was found last.
    let presence = ContentPresence()
    private var told: Duration?

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Begins, for as long as the service runs.
    func start() {
        check { [weak self] _ in
            self?.transfers.host?.loop.schedule(after: Self.interval) { [weak self] in self?.start() }
        }
    }

    /// Looks now, also whether whoever runs the service wants all content to be read.
    ///
    /// - Parameter completion: Gets whether the folder is known to be there.
    func check(_ completion: @escaping (Bool) -> Void) {
        guard let host = transfers.host else { return }
        let (store, snapshots) = (transfers.store, host.snapshots)
        host.loop.offload(to: .content) {
            try ContentDisk.check(store, snapshots)
            return store.takeScrubRequest()
        } then: { [weak self] result in
            switch result {
            case .success(let isScrubAsked):
                self?.note(nil)
                if isScrubAsked { self?.transfers.scrubNow() }
            case .failure(let error): self?.note(error)
            }
            completion((try? result.get()) != nil)
        }
    }

    /// What somebody found.
    ///
    /// - Parameter error: Nil: the folder is there. Another one than ``ContentDisk/Gone`` says nothing of it.
    func note(_ error: (any Error)?) {
        guard let host = transfers.host else { return }
        guard let error else {
            if presence.isMissing { host.set(Self.counter, to: 0) }
            (presence.isMissing, told) = (false, nil)
            return
        }
        guard let gone = error as? ContentDisk.Gone else { return }
        presence.isMissing = true
        host.set(Self.counter, to: 1)
        let now = host.loop.monotonicNow
        guard told.map({ now - $0 >= Self.tellInterval }) ?? true else { return }
        told = now
        switch gone {
        case .missing:
            host.report(
                "Most segments of content are not in their folder. Mount its disk, or bring it back from a backup; no "
                    + "device is asked for its chunks meanwhile", details: [:])
        case .unreadable(let error):
            host.report(
                "The folder of content cannot be read. Look at its disk, and whose it is; no device is asked for its "
                    + "chunks meanwhile", details: ["error": error.message])
        }
    }
}

extension Transfers {
    /// The folder of content is not there, as it was found last: none can be fetched.
    public var isContentMissing: Bool { watch.presence.isMissing }

    /// What keeps the service from giving back what it has taken; nil: nothing does.
    public var impediment: String? {
        isContentMissing
            ? "Its contents are not where they were put: mount their disk, or bring them back from a backup." : nil
    }
}
