import Foundation
import NephosCore
import NephosSync
import Testing

/// The table in `docs/architecture.md` says what the rule decides.
@Suite struct ReconcileRuleTests {
    private typealias Row = (line: String, inputs: [[Substring]], decision: Substring)

    private func table() throws -> [Row] {
        let page = try String(
            contentsOfFile: #filePath.replacing(
                "Tests/NephosSyncTests/ReconcileRuleTests.swift", with: "docs/architecture.md"), encoding: .utf8)
        let start = try #require(page.range(of: "| device has | place |")).lowerBound
        let lines = page[start...].split(separator: "\n", omittingEmptySubsequences: false)
        return lines.prefix { $0.hasPrefix("|") }.dropFirst(2).map { line in
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            return (String(line), cells.dropLast().map { $0.split(separator: ", ") }, Substring(cells[cells.count - 1]))
        }
    }

    private static let allTheirs: [ReconcileRule.Theirs] =
        [true, false].flatMap { isLive in
            ReconcileRule.Later.allCases.flatMap { later in
                [true, false].map { .told(isLive: isLive, later, isCommon: $0) }
            }
        }
        + [true, false].flatMap { isQuarantined in
            [true, false].map { .unlisted(isQuarantined: isQuarantined, canAsk: $0) }
        }

    private static let all: [ReconcileRule] = ReconcileRule.Mine.allCases.flatMap { mine in
        ReconcileRule.Place.allCases.flatMap { place in
            [true, false].flatMap { isOwn in
                allTheirs.map { ReconcileRule(mine: mine, place: place, isOwn: isOwn, theirs: $0) }
            }
        }
    }

    /// A case's inputs, in the table's words; what makes no difference is empty.
    private func words(_ rule: ReconcileRule) -> [String] {
        let theirs: [String] =
            switch rule.theirs {
            case .told(let isLive, let later, let isCommon):
                [isLive ? "live" : "deleted", "\(later)", isCommon ? "yes" : "no", ""]
            case .unlisted(let isQuarantined, let canAsk):
                [isQuarantined ? "quarantined" : "unlisted", "", "", canAsk ? "yes" : "no"]
            }
        return ["\(rule.mine)", "\(rule.place)", rule.isOwn ? "own" : "other"] + theirs
    }

    private func words(_ decision: ReconcileRule.Decision) -> String {
        switch decision {
        case .keep: "keep"
        case .take: "take"
        case .takeAndOffer(let isLater): isLater ? "take, offer as later" : "take, offer beside"
        case .offer: "offer"
        case .forget: "forget"
        case .ask(let isNewer): isNewer ? "ask, is newer" : "ask"
        }
    }

    @Test func everyCaseHasOneLineOfTheTable() throws {
        let table = try table()
        #expect(Set(Self.all).count == 480 && table.count == 25)
        var used: Set<String> = []
        for rule in Self.all {
            let inputs = words(rule)
            let rows = table.filter { row in
                row.inputs.count == inputs.count
                    && zip(row.inputs, inputs).allSatisfy { $0 == ["any"] || $0.contains(Substring($1)) }
            }
            #expect(rows.count == 1, "\(inputs): \(rows.map(\.line))")
            #expect(rows.first.map { String($0.decision) } == words(rule.decision), "\(inputs)")
            used.formUnion(rows.map(\.line))
        }
        #expect(used.count == table.count)
    }
}

/// Which sequences the two sides have in common, and where an item stands by its own.
@Suite struct HistoryRelationTests {
    private static let held = ChangeToken(epoch: 1, sequence: 9)

    private func relation(
        epoch: UInt64 = 1, of held: ChangeToken = held, wentBack: Bool = false, isComparing: Bool = false
    ) -> HistoryRelation {
        HistoryRelation(
            of: held, to: ChangeToken(epoch: epoch, sequence: 12), wentBack: wentBack, isComparing: isComparing,
            start: 5)
    }

    @Test func eachEventHasItsCommonSequence() {
        let relations = [
            relation(), relation(isComparing: true), relation(epoch: 2), relation(epoch: 2, isComparing: true),
            relation(wentBack: true), relation(epoch: 2, of: .zero),
            HistoryRelation(continuedTo: ChangeToken(epoch: 1, sequence: 12)),
        ]
        #expect(relations.map(\.common) == [.max, 0, 5, 0, 12, .max, .max])
        #expect(relations.map(\.isOwn) == [true, true, false, false, false, true, true])
        #expect(relations.allSatisfy { $0.end == 12 })
    }

    /// Above what was told of the item; in a comparison, above the head of the pull.
    @Test(arguments: [
        (1, 3, false, false), (1, 4, false, true), (1, 12, true, false), (1, 13, true, true), (2, 13, false, false),
    ])
    func whatIsAheadStays(_ epoch: UInt64, _ sequence: UInt64, _ isComparing: Bool, _ isKept: Bool) {
        let relation = relation(epoch: epoch, isComparing: isComparing)
        let decision = relation.decide(.live, at: sequence, isLive: true, at: 3, .unknown)
        #expect((decision == .keep) == isKept)
    }

    @Test func whatCameAfterTheCommonSequenceIsOffered() {
        let (own, other) = (relation(), relation(epoch: 2))
        func decisions(_ relation: HistoryRelation, _ told: UInt64) -> [ReconcileRule.Decision] {
            [5, 6].map { relation.decide(.live, at: $0, isLive: true, at: told, .unknown) }
        }
        #expect(decisions(own, 7) == [.take, .take])
        #expect(decisions(other, 5) == [.take, .takeAndOffer(isLater: true)])
        #expect(decisions(other, 6) == [.take, .takeAndOffer(isLater: false)])
        #expect([5, 6].map { other.decideUnlisted(.live, at: $0, isQuarantined: false) } == [.forget, .offer])
        #expect([12, 13].map { own.decideUnlisted(.live, at: $0, isQuarantined: false) } == [.forget, .keep])
        #expect([12, 13].map { own.decideUnlisted(.live, at: $0, isQuarantined: true) } == [.offer, .keep])
        #expect(relation(isComparing: true).decideUnlisted(.live, at: 1, isQuarantined: false) == .offer)
    }
}
