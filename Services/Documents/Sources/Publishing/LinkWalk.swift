internal import NephosCore

/// Which links are looked at next: those that have ended, those of accounts that something has become of, and all. What
/// is called for while a part is under way has its turn after it, so that whatever is called for, each part comes to its
/// end.
struct LinkWalk {
    enum Part: Equatable {
        case ended
        case account(AccountID)
        case all
    }

    /// Accounts that wait. With more, all links are looked at.
    private static let accountsMax = 256

    private(set) var part = Part.ended
    /// The last of the part that was looked at; nil: none.
    private(set) var last: LinkRows.Link?
    /// Nothing is left to be done, until something is called for, or time ends some.
    private(set) var isAtRest = false
    private var accounts: [AccountID] = []
    /// At the start: what they rest on may have changed before the end of the last run.
    private var wantsAll = true

    mutating func add(_ account: AccountID) {
        guard !accounts.contains(account) else { return }
        guard accounts.count < Self.accountsMax else { return addAll() }
        accounts.append(account)
    }

    mutating func addAll() { wantsAll = true }

    /// Notes that a step has been made.
    ///
    /// - Parameter last: The last link of it; nil: there were no more of the part.
    mutating func pass(_ last: LinkRows.Link?) {
        self.last = last
        isAtRest = false
        guard last == nil else { return }
        switch part {
        // Some have ended just now.
        case .account, .all: part = .ended
        case .ended:
            if !accounts.isEmpty {
                part = .account(accounts.removeFirst())
            } else if wantsAll {
                wantsAll = false
                part = .all
            } else {
                isAtRest = true
            }
        }
    }
}
