internal import NephosCore

/// How the room of a plan is divided among the services.
///
/// What keeps the sum within the plan: a service believes in no more than what
/// is in the book for it (it lowers its own number first and tells then; a grant
/// is in the book first and is told then), and the book is never raised beyond
/// the plan.
enum LedgerRule {
    /// What a service gets beyond what it asks for, so that it need not ask for
    /// each write: at most this, and at most an eighth of what is free.
    static let spareMax: UInt64 = 64 << 20
    private static let spareShare: UInt64 = 8

    /// A settlement as the service asks for it.
    struct Request: Hashable {
        var revision: UInt64
        var allotted: UInt64
        var wanted: UInt64
        var used: UInt64
    }

    enum Decision: Hashable {
        /// An older one than what is in the book: nothing changes.
        case outdated(Allotment)
        /// - Parameter isShort: Less than was wanted, while others hold unused room.
        case settled(Allotment, isShort: Bool)
    }

    /// - Parameter book: All allotments of the owner.
    static func settle(_ request: Request, of service: ServiceName, plan: UInt64, book: [Allotment]) -> Decision {
        let known = book.first { $0.service == service }
        if let known, request.revision < known.revision { return .outdated(known) }
        let others = book.filter { $0.service != service }
        let room = subtract(others.reduce(0) { add($0, $1.allotted) }, from: plan)
        // What it may hold already, because an answer to this revision has told it so.
        let held = max(request.allotted, known?.revision == request.revision ? known?.allotted ?? 0 : 0)
        let wanted = max(request.wanted, held)
        var granted = max(held, min(wanted, room))
        if request.wanted > held, granted == wanted {
            granted = max(granted, min(add(granted, min(spareMax, (room - granted) / spareShare)), room))
        }
        let unused = others.contains { $0.allotted > $0.used }
        return .settled(
            Allotment(service: service, revision: request.revision, allotted: granted, used: request.used),
            isShort: granted < wanted && unused)
    }

    /// The highest threshold that is passed, in percent: a warning at 80, 90 and 95, and 100 when nothing is left.
    ///
    /// A plan of nothing has nothing left from the first.
    static func level(used: UInt64, plan: UInt64) -> UInt32 {
        guard plan > 0 else { return 100 }
        guard used > 0 else { return 0 }
        for level: UInt32 in [100, 95, 90, 80] where Double(used) >= Double(plan) * Double(level) / 100 { return level }
        return 0
    }

    static func add(_ left: UInt64, _ right: UInt64) -> UInt64 {
        let (sum, overflow) = left.addingReportingOverflow(right)
        return overflow ? .max : sum
    }

    private static func subtract(_ amount: UInt64, from total: UInt64) -> UInt64 {
        total > amount ? total - amount : 0
    }
}
