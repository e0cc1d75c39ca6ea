/// The rule for two histories, the same for keys, documents and records: what becomes of one item when a device's copy and
/// the server's scope may differ.
///
/// Its inputs are finite. The table in docs/architecture.md has a line for each of its cases, and a test walks all of them.
/// Models look up the inputs, and carry out the decision.
package struct ReconcileRule: Hashable, Sendable {
    /// What the device has of the item.
    package enum Mine: CaseIterable, Sendable {
        case absent, live, deleted
        /// A deletion that was inferred from the absence of the very write that the server has.
        case inferred
    }

    /// Where the device's state of the item stands in the server's history.
    package enum Place: CaseIterable, Sendable {
        /// The server has had it.
        case common
        /// The server may have lost it.
        case parted
        /// It is newer than what was pulled: a push's reply or another process was quicker.
        case ahead
    }

    /// Which of two states is the later one by their own stamps.
    package enum Later: CaseIterable, Sendable { case same, mine, theirs, unknown }

    /// What the server has of the item.
    package enum Theirs: Hashable, Sendable {
        /// - Parameter isCommon: The server has had this state before the histories parted.
        case told(isLive: Bool, Later, isCommon: Bool)
        /// A listing lacks it.
        ///
        /// - Parameters:
        ///   - isQuarantined: The server has it, and cannot read it.
        ///   - canAsk: The service remembers what was deleted, and answers questions about it.
        case unlisted(isQuarantined: Bool, canAsk: Bool)
    }

    package enum Decision: Hashable, Sendable {
        /// The device's state stays.
        case keep
        /// The server's state replaces the device's.
        case take
        /// The same, and the device's state is offered to the server.
        ///
        /// - Parameter isLater: It followed the server's state. If not, the two are a conflict, or only the server can tell.
        case takeAndOffer(isLater: Bool)
        /// The device's state leaves the copy, and is offered to the server.
        case offer
        /// The item was deleted.
        case forget
        /// The item leaves the copy until the service has said what became of it.
        ///
        /// - Parameter isNewer: The server may have lost it.
        case ask(isNewer: Bool)
    }

    package var mine: Mine
    package var place: Place
    /// The device's copy is of the history that was pulled.
    package var isOwn: Bool
    package var theirs: Theirs

    package init(mine: Mine, place: Place, isOwn: Bool, theirs: Theirs) {
        (self.mine, self.place, self.isOwn, self.theirs) = (mine, place, isOwn, theirs)
    }

    package var decision: Decision {
        if mine != .absent, place == .ahead { return .keep }
        switch theirs {
        case .told(let isLive, let later, let isCommon):
            return isOffered(overLive: isLive, later) ? .takeAndOffer(isLater: isCommon || later == .mine) : .take
        case .unlisted(let isQuarantined, let canAsk):
            let isLost = isQuarantined || place == .parted
            guard mine == .live else { return .forget }
            return canAsk ? .ask(isNewer: isLost) : isLost ? .offer : .forget
        }
    }

    private func isOffered(overLive: Bool, _ later: Later) -> Bool {
        switch (mine, later) {
        case (.absent, _), (_, .same): false
        case (.inferred, _): later == .mine && !isOwn
        case (_, .mine): true
        case (.live, _): place == .parted
        // Where stamps do not tell, the server decides whether the item was made again after it was deleted.
        case (.deleted, _): later == .unknown && overLive && place == .parted && !isOwn
        }
    }
}
