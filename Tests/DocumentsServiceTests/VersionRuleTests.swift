import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosDocuments

/// Which versions of a content stay.
@Suite struct VersionRuleTests {
    /// An item's versions at seeded times, in bursts as a person works, over some two years.
    private func versions(_ seed: UInt64, until now: Int64) -> [VersionRule.Version] {
        var generator = SplitMix64(seed: seed)
        var time = now - 700 * VersionRule.day
        var versions: [VersionRule.Version] = []
        let pauses = [VersionRule.hour / 60, VersionRule.hour / 2, VersionRule.day / 3, 5 * VersionRule.day]
        while time < now {
            versions.append(
                VersionRule.Version(id: [UInt8(versions.count / 250), UInt8(versions.count % 250)], committed: time))
            let longest = pauses.randomElement(using: &generator) ?? 1
            time += Int64.random(in: 0..<longest, using: &generator)
        }
        return versions
    }

    private static let now: Int64 = 20_000 * VersionRule.day + 12_345_678_901_234
    private static let all = 1_000_000

    private func kept(
        _ versions: [VersionRule.Version], needed: Set<[UInt8]> = [], at now: Int64 = Self.now,
        countMax: Int = Self.all,
        ageMax: Duration = .seconds(365 * 86_400)
    ) -> [VersionRule.Version] {
        let gone = VersionRule.superfluous(versions, needed: needed, at: now, countMax: countMax, ageMax: ageMax)
        #expect(Set(gone).count == gone.count)
        return versions.filter { !Set(gone).contains($0.id) }
    }

    @Test(arguments: 1...40 as ClosedRange<UInt64>) func ofEachHourDayAndWeekTheNewestStays(_ seed: UInt64) {
        let versions = versions(seed, until: Self.now)
        let needed = Set(versions.indices.filter { $0 % 17 == 0 }.map { versions[$0].id })
        let kept = Set(kept(versions, needed: needed).map(\.id))
        for (index, version) in versions.enumerated() {
            let age = Self.now - version.committed
            let slot: Int64? =
                switch age {
                case ..<VersionRule.day: nil
                case ..<(7 * VersionRule.day): VersionRule.hour
                case ..<(30 * VersionRule.day): VersionRule.day
                default: VersionRule.week
                }
            let hasNewer = slot.map { slot in
                versions[(index + 1)...].contains { $0.committed / slot == version.committed / slot }
            }
            let isKept = needed.contains(version.id) || age < 365 * VersionRule.day && hasNewer != true
            #expect(kept.contains(version.id) == isKept, "seed \(seed), version \(index)")
        }
    }

    /// The operator may say how old versions get, also more than a year.
    @Test(arguments: [1, 10, 100, 1000]) func noneIsOlderThanTheOperatorSays(days: Int) {
        let versions = versions(3, until: Self.now)
        let least = Self.now - Int64(days) * VersionRule.day
        let left = kept(versions, ageMax: .seconds(days * 86_400))
        #expect(left.allSatisfy { $0.committed > least })
        #expect(
            left.map(\.id)
                == kept(versions, ageMax: .seconds(10_000 * 86_400)).filter { $0.committed > least }.map(\.id))
        if days > 365 { #expect(left.contains { $0.committed < Self.now - 400 * VersionRule.day }) }
    }

    /// What is left does not depend on when, or how often, it was looked.
    @Test(arguments: 1...40 as ClosedRange<UInt64>) func itIsNoMatterHowOftenVersionsAreThinned(_ seed: UInt64) {
        let versions = versions(seed, until: Self.now)
        var generator = SplitMix64(seed: seed)
        var left: [VersionRule.Version] = []
        for version in versions {
            left.append(version)
            if Int.random(in: 0..<5, using: &generator) == 0 { left = kept(left, at: version.committed) }
        }
        #expect(kept(left).map(\.id) == kept(versions).map(\.id))
        #expect(kept(kept(versions)).map(\.id) == kept(versions).map(\.id))
    }

    /// One busy hour does not take the place of a year.
    @Test func beyondTheirNumberThoseGoThatAreClosestToTheNext() {
        var versions = (0..<30).map {
            VersionRule.Version(id: [0, $0], committed: Self.now - (300 - Int64($0) * 8) * VersionRule.day)
        }
        versions += (0..<200).map {
            VersionRule.Version(id: [1, $0], committed: Self.now - Int64(200 - Int($0)) * 1_000)
        }
        let kept = kept(versions, needed: [[1, 0]], countMax: 100)
        #expect(kept.count == 100 && kept.filter { $0.id[0] == 0 }.count == 30)
        #expect(kept.last?.id == [1, 199] && kept.contains { $0.id == [1, 0] })
    }

    @Test func timesThatNoClockTellsTakeNothingAway() {
        let times: [Int64] = [.max, Self.now + VersionRule.day, Self.now, .max, Self.now - VersionRule.hour]
        let versions = times.enumerated().map { VersionRule.Version(id: [UInt8($0)], committed: $1) }
        #expect(kept(versions).count == times.count)
        #expect(kept(versions, countMax: 1).count == 1)
        #expect(kept([VersionRule.Version(id: [0], committed: .min)]).isEmpty)
    }

    /// A file that is saved again and again over months, at the service's own door.
    @Test func aFilesVersionsAreThinnedAsTheyAgeAndGiveTheirRoomBack() throws {
        let house = try ContainerHouse()
        var here = try house.device()
        let times = [400, 399, 50, 50, 20, 20, 3, 3].map { Duration.seconds(-$0 * 86_400) } + [.zero]
        var id: DocumentID?
        var base: WireDocumentContent?
        var conflict: WireDocumentContent?
        for (number, time) in times.enumerated() {
            if number > 0 {
                for service in [ServiceName.identity, .documents] {
                    house.cloud.skip(time - times[number - 1], of: service)
                }
                here = try house.device()
            }
            // Both within one hour and one day.
            house.cloud.network.run(for: .seconds(10))
            if let id, let former = base {
                let content = WireDocumentContent.inline("\(number)", base: former.version)
                try here.apply([.replace(id, content)])
                base = content
                if number == 1 {
                    let lost = WireDocumentContent.inline("lost", base: former.version)
                    try here.apply([.replace(id, lost)])
                    conflict = lost
                }
            } else {
                let made = try here.makeFile("a", "0")
                (id, base) = (made, try here.item(made).content)
            }
        }
        let file = try #require(id)
        // What the conflict was made from is needed, as old as it is; the one beside it is not.
        let kept = try here.versions(of: file).map(\.text)
        #expect(kept == ["8", "7", "5", "3", "lost", "0"])
        #expect(try here.item(file).conflicts.map(\.version) == [conflict?.version])
        #expect(try house.used() == Int64(kept.joined().utf8.count))
    }
}
