import NephosBus

/// Spaces pushes out before the server has to refuse them: at once while more
/// than half of the published budget is left, then one per refill.
struct PushPacing {
    private(set) var budget: Budget?
    private var remaining = 0.0
    private var updated: Duration = .zero
    private var nextPush: Duration = .zero

    /// What a reply said.
    mutating func observe(_ budget: Budget, now: Duration) {
        self.budget = budget
        remaining = Double(budget.remaining)
        updated = now
    }

    /// How long the next push should wait; zero: none.
    func wait(now: Duration) -> Duration {
        guard let budget, budget.capacity > 0 else { return .zero }
        if available(now: now) > Double(budget.capacity) / 2 { return .zero }
        return max(.zero, nextPush - now)
    }

    mutating func pushed(now: Duration) {
        guard let budget else { return }
        remaining = max(0, available(now: now) - 1)
        updated = now
        nextPush = max(now, nextPush) + budget.refill
    }

    private func available(now: Duration) -> Double {
        guard let budget else { return .infinity }
        guard budget.refill > .zero else { return Double(budget.capacity) }
        return min(Double(budget.capacity), remaining + (now - updated) / budget.refill)
    }
}
