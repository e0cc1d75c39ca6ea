internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

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

    private static let selectAll = SQL(
        """
        SELECT p.plan_id, p.size_bytes, (SELECT COUNT(*) FROM accounts a WHERE a.plan_id = p.plan_id),
            (SELECT COUNT(*) FROM apps b WHERE b.plan_id = p.plan_id AND b.removed = 0)
        FROM plans p ORDER BY p.size_bytes, p.plan_id
        """)
    private static let selectCount = SQL("SELECT COUNT(*) FROM plans")
    private static let selectByID = SQL("SELECT plan_id, size_bytes FROM plans WHERE plan_id = ?1")
    private static let upsert = SQL(
        """
        INSERT INTO plans (plan_id, size_bytes) VALUES (?1, ?2)
        ON CONFLICT (plan_id) DO UPDATE SET size_bytes = excluded.size_bytes
        """)
    private static let selectOwners = SQL(
        """
        SELECT account_id FROM accounts WHERE plan_id = ?1 AND account_id > ?2
        UNION ALL SELECT 'app/' || app_id FROM apps WHERE plan_id = ?1 AND removed = 0 AND 'app/' || app_id > ?2
        ORDER BY 1 LIMIT ?3
        """)
    private static let insertChange = SQL(
        "INSERT INTO plan_changes (plan_id, told) VALUES (?1, '') ON CONFLICT (plan_id) DO UPDATE SET told = ''")
    private static let selectChange = SQL("SELECT plan_id, told FROM plan_changes ORDER BY plan_id LIMIT 1")
    private static let updateChange = SQL("UPDATE plan_changes SET told = ?2 WHERE plan_id = ?1")
    private static let deleteChange = SQL("DELETE FROM plan_changes WHERE plan_id = ?1")

    /// Every plan, smallest first, with the number of accounts and apps that have it.
    func list() throws -> [(plan: Plan, accounts: Int, apps: Int)] {
        try transaction.all(Self.selectAll, []) { (Self.plan($0), Int($0.integer(2)), Int($0.integer(3))) }
    }

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

    /// Whose plan it is, in order.
    private func owners(of plan: PlanID, after told: String, limit: Int) throws -> [Owner] {
        try transaction.all(Self.selectOwners, [.text(plan.rawValue), .text(told), .integer(Int64(limit))]) {
            Owner($0.text(0))
        }
    }

    /// Notes that all owners of the plan have to hear of its size.
    func noteChange(of plan: PlanID) throws { try transaction.execute(Self.insertChange, [.text(plan.rawValue)]) }

    /// The next owners who have to hear of their plan's size, and have once this is committed.
    ///
    /// - Returns: Nil: everybody has.
    func takeOwnersToTell(limit: Int) throws -> (plan: Plan, owners: [Owner])? {
        let change = try transaction.first(Self.selectChange) { (plan: PlanID($0.text(0)), told: $0.text(1)) }
        guard let change else { return nil }
        guard let plan = try plan(change.plan) else {
            throw CloudError(.internalError, "A plan that has changed is not there.")
        }
        let owners = try owners(of: plan.id, after: change.told, limit: limit)
        if owners.count == limit, let last = owners.last {
            try transaction.execute(Self.updateChange, [.text(plan.id.rawValue), .text(last.rawValue)])
        } else {
            try transaction.execute(Self.deleteChange, [.text(plan.id.rawValue)])
        }
        return (plan, owners)
    }

    private static func plan(_ row: any SQLRow) -> Plan {
        Plan(id: PlanID(row.text(0)), size: UInt64(clamping: row.integer(1)))
    }
}
