internal import NephosCore

/// Which versions of an item's content are kept: all of the last day, then one of an hour, of a day, of a week, and none
/// that is older than a year.
///
/// Of each hour, day and week the newest stays. Since weeks begin where days do, and days where hours do, it is no matter
/// how often this is applied, or when: what is left is the same.
enum VersionRule {
    struct Version {
        var id: [UInt8]
        /// When it was committed, by the service's clock, in nanoseconds since 1970.
        var committed: Int64
    }

    private static let second: Int64 = 1_000_000_000
    static let hour = 3600 * second
    static let day = 24 * hour
    static let week = 7 * day
    /// Up to which age one of how long a time stays (nil: all do); beyond the last of them one of as long as there.
    private static let tiers: [(age: Int64, slot: Int64?)] = [
        (day, nil), (7 * day, hour), (30 * day, day), (365 * day, week),
    ]

    /// Whether something may be to thin out since a version of that time.
    static func isDue(since last: Int64, at now: Int64) -> Bool { last / hour != now / hour }

    /// What is not kept, the oldest first.
    ///
    /// - Parameters:
    ///   - versions: The oldest first.
    ///   - needed: Ids of those that stay in any case: the current one, conflicts, and what they were made from.
    ///   - ageMax: Older ones go, whatever they are beside.
    ///   - countMax: Beyond this those go that have the next one closest behind them: one busy hour does not take the
    ///     place of a year.
    static func superfluous(
        _ versions: [Version], needed: Set<[UInt8]>, at now: Int64, countMax: Int, ageMax: Duration
    ) -> [[UInt8]] {
        var kept: [Version] = []
        var gone: [[UInt8]] = []
        var next: Int64?
        for version in versions.reversed() {
            if needed.contains(version.id) || !isOld(version.committed, before: next, at: now, ageMax.nanoseconds) {
                kept.append(version)
            } else {
                gone.append(version.id)
            }
            next = version.committed
        }
        return gone.reversed() + crowded(kept.reversed(), needed, count: kept.count - countMax)
    }

    /// - Parameter next: When the next newer one was committed.
    private static func isOld(_ committed: Int64, before next: Int64?, at now: Int64, _ ageMax: Int64) -> Bool {
        let (age, isFarAway) = now.subtractingReportingOverflow(committed)
        guard !isFarAway else { return committed < now }
        guard age < ageMax else { return true }
        guard let slot = (tiers.first { age < $0.age } ?? tiers[tiers.count - 1]).slot, let next else { return false }
        return next / slot == committed / slot
    }

    /// So many of those that have the next one closest behind them, the oldest first.
    private static func crowded(_ versions: [Version], _ needed: Set<[UInt8]>, count: Int) -> [[UInt8]] {
        guard count > 0 else { return [] }
        var left = versions
        var gone: [[UInt8]] = []
        while gone.count < count {
            var closest: (place: Int, gap: UInt64)?
            for place in left.indices.dropLast() where !needed.contains(left[place].id) {
                let (next, time) = (left[place + 1].committed, left[place].committed)
                let gap = next > time ? next.magnitudeAbove(time) : 0
                if closest.map({ gap < $0.gap }) ?? true { closest = (place, gap) }
            }
            guard let closest else { return gone }
            gone.append(left.remove(at: closest.place).id)
        }
        return gone
    }
}

extension Int64 {
    /// How far it is above a smaller one.
    fileprivate func magnitudeAbove(_ other: Int64) -> UInt64 { UInt64(bitPattern: self) &- UInt64(bitPattern: other) }
}
