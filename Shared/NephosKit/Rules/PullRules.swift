import Core
import Wire

/// What a pull brought.
struct PulledState {
    var token: ChangeToken
    var complete: Bool
    var items: [KeyValueItem]
    var epochStart: UInt64
}

/// What a pull does to the local items.
struct PullPlan: Hashable {
    /// Forget all items before `puts`.
    var replaces = false
    var puts: [KeyValueItem] = []
    /// What a restored server lost and this device still has.
    var offers: [KeyValueItem] = []
}

enum PullRules {
    /// Nil: these changes cannot be applied to what is here; fetch everything.
    static func plan(_ pulled: PulledState, local: [KeyValueItem], head: ChangeToken) -> PullPlan? {
        let restored = head.epoch != 0 && pulled.token.epoch != head.epoch
        let mine = Dictionary(local.map { ($0.key, $0) }) { $1 }
        guard restored else {
            // A push's reply, or another process, may have brought newer states already.
            var puts = pulled.items.filter { $0.sequence >= mine[$0.key]?.sequence ?? 0 }
            if pulled.complete {
                let replaced = Set(puts.map(\.key))
                puts += local.filter { $0.sequence > pulled.token.sequence && !replaced.contains($0.key) }
            }
            return PullPlan(replaces: pulled.complete, puts: puts)
        }
        guard pulled.complete || local.allSatisfy({ $0.sequence <= pulled.epochStart }) else { return nil }
        let theirs = Dictionary(pulled.items.map { ($0.key, $0) }) { $1 }
        let offers = local.filter { item in
            if let other = theirs[item.key] { item.wins(over: other) } else { item.sequence > pulled.epochStart }
        }
        return PullPlan(replaces: pulled.complete, puts: pulled.items, offers: offers)
    }
}
