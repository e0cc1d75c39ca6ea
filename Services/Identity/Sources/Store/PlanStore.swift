internal import Core
internal import ServiceKit
internal import Storage

/// Names a plan.
struct PlanID: Identifier {
    let rawValue: String
    init(rawValue: String) { self.rawValue = rawValue }

    /// What accounts and apps have unless another is named: 5 GB.
    static let standard = PlanID("standard")
}

struct Plan: Hashable, Sendable {
    var id: PlanID
    /// Bytes.
    var size: UInt64
}

struct PlanStore {
    /// Plans of a deployment.
    static let plansMax = 1000

    let transaction: any Transaction

    private static let selectAll = SQL("SELECT plan_id, size_bytes FROM plans ORDER BY size_bytes, plan_id")
    private static let selectCount = SQL("SELECT COUNT(*) FROM plans")
    private static let selectByID = SQL("SELECT plan_id, size_bytes FROM plans WHERE plan_id = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO plans (plan_id, size_bytes) VALUES (?1, ?2)
        ON CONFLICT (plan_id) DO UPDATE SET size_bytes = excluded.size_bytes
        """)
    private static let selectOwners = SQL(
        """
        SELECT account_id FROM accounts WHERE plan_id = ?1
        UNION ALL SELECT 'app/' || app_id FROM apps WHERE plan_id = ?1 AND removed = 0
        ORDER BY 1
        """)

    /// Every plan, smallest first.
    func list() throws -> [Plan] { try transaction.all(Self.selectAll, [], Self.plan) }

    func plan(_ id: PlanID) throws -> Plan? {
        try transaction.first(Self.selectByID, [.text(id.rawValue)], Self.plan)
    }

    func count() throws -> Int {
        try transaction.first(Self.selectCount) { Int($0.integer(0)) } ?? 0
    }

    /// Makes a plan, or changes its size.
    func save(_ plan: Plan) throws {
        try transaction.execute(
            Self.upsert, [.text(plan.id.rawValue), .integer(Int64(clamping: plan.size))])
    }

    /// Whose plan it is.
    func owners(of plan: PlanID) throws -> [StorageOwner] {
        try transaction.all(Self.selectOwners, [.text(plan.rawValue)]) { StorageOwner($0.text(0)) }
    }

    private static func plan(_ row: any SQLRow) -> Plan {
        Plan(id: PlanID(row.text(0)), size: UInt64(clamping: row.integer(1)))
    }
}
