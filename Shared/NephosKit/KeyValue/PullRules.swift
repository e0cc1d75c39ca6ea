import NephosCore
import NephosWire

/// What a pull brought.
struct PulledState {
    var token: ChangeToken
    var complete: Bool
    var items: [KeyValueItem] = []
    /// How far the history that was pulled and the one that this device knows are the same.
    var epochStart: UInt64
    /// At one and the same head the digests differed: nothing that is here is taken for known there.
    var comparing = false
    /// What is here was told of another history, though of one epoch.
    var isOtherHistory = false
}

/// What a pull does to the local items.
struct PullPlan: Hashable {
    /// Forget all items before `puts`.
    var replaces = false
    var puts: [KeyValueItem] = []
    /// What this device has and the server has lost, or holds an older state of.
    var offers: [KeyValueItem] = []
}

enum PullRules {
    /// How long a deletion is remembered beyond the listing that it is not in, and how many of them.
    static let tombstoneRetention: Duration = .seconds(90 * 24 * 3600)
    static let tombstonesMax = 4096
    /// The sequence of a deletion that is remembered from an earlier history: nothing in the present one is older. 0 is
    /// of a deletion that was inferred.
    static let before: UInt64 = 1

    /// Nil: these changes cannot be applied to what is here; fetch everything.
    ///
    /// - Parameter now: For the age of deletions.
    static func plan(_ pulled: PulledState, local: [KeyValueItem], head: ChangeToken, now: Timestamp) -> PullPlan? {
        let restored = head.epoch != 0 && (pulled.token.epoch != head.epoch || pulled.isOtherHistory)
        guard pulled.complete || !restored else { return nil }
        let mine = byName(local)
        let theirs = byName(pulled.items)
        let common = pulled.comparing ? 0 : restored ? pulled.epochStart : UInt64.max

        var plan = PullPlan(replaces: pulled.complete)
        // In one history, a push's reply or another process may have brought a newer state already.
        func isNewer(_ held: KeyValueItem, than other: KeyValueItem) -> Bool {
            !restored && held.sequence > (pulled.comparing ? pulled.token.sequence : other.sequence)
        }
        for item in pulled.items {
            guard let held = mine[item.key], isNewer(held, than: item) else {
                plan.puts.append(item)
                continue
            }
            if pulled.complete { plan.puts.append(held) }
        }
        var tombstones: [KeyValueItem] = []
        var absent: [KeyValueItem] = []
        for item in local {
            if let other = theirs[item.key] {
                if !isNewer(item, than: other), offers(item, over: other, common: common, restored: restored) {
                    plan.offers.append(item)
                }
            } else if pulled.complete {
                if !restored, item.sequence > pulled.token.sequence {
                    plan.puts.append(item)
                } else if item.value == nil {
                    tombstones.append(item)
                } else if item.sequence > common {
                    plan.offers.append(item)
                } else {
                    absent.append(deletion(of: item))
                }
            }
        }
        let oldest = HybridTimestamp(now.advanced(by: .zero - tombstoneRetention))
        plan.puts += remembered(
            tombstones.filter { $0.timestamp > oldest } + absent, restored: restored, head: pulled.token)
        return plan
    }

    /// Whether the server has to hear of this state, which is not the one that it has.
    private static func offers(
        _ item: KeyValueItem, over other: KeyValueItem, common: UInt64, restored: Bool
    ) -> Bool {
        if item.wins(over: other) { return restored || !isInferred(item, from: other) }
        // One that has lost belongs into the history; the same write is no news.
        guard item.value != nil, item.sequence > common else { return false }
        return other.wins(over: item) || item.value != other.value
    }

    /// The newest deletions: a key that comes back from an old copy, or from a
    /// device that missed its deletion, is deleted again by whoever remembers.
    private static func remembered(
        _ tombstones: [KeyValueItem], restored: Bool, head: ChangeToken
    ) -> [KeyValueItem] {
        tombstones.sorted { $0.timestamp > $1.timestamp }.prefix(tombstonesMax).map { item in
            var item = item
            // Before everything in the history that is followed from now on.
            if restored { item.sequence = min(item.sequence, before, head.sequence) }
            return item
        }
    }

    /// What is known of a deletion of which only the absence was seen: it is newer than the value that was here.
    ///
    /// No server has it: its sequence is 0.
    private static func deletion(of item: KeyValueItem) -> KeyValueItem {
        var deletion = item
        deletion.value = nil
        deletion.timestamp = item.timestamp.next
        deletion.sequence = 0
        return deletion
    }

    /// Whether a deletion is one that was inferred from the absence of this very write. In one history the write was
    /// never deleted if it is there again: the listing that lacked it was wrong. Only an old copy brings it back.
    static func isInferred(_ deletion: KeyValueItem, from other: KeyValueItem) -> Bool {
        deletion.value == nil && deletion.sequence == 0 && other.value != nil
            && deletion.deviceID == other.deviceID && deletion.timestamp == other.timestamp.next
    }

    private static func byName(_ items: [KeyValueItem]) -> [ItemName: KeyValueItem] {
        Dictionary(items.map { ($0.key, $0) }) { $1 }
    }

    /// The offers, put together as they were written: what was one transaction is offered as one.
    static func transactions(_ offers: [KeyValueItem]) -> [[KeyValueItem]] {
        Dictionary(grouping: offers, by: \.sequence).sorted { $0.key < $1.key }.map { $0.value }
    }
}
