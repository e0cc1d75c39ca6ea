import Core
import Storage
import Testing

@Suite struct FeedReaderTests {
    let engine: SQLiteEngine

    init() throws { engine = try .fresh() }

    func changes(after token: ChangeToken) throws -> ([ItemName], ChangeToken) {
        try engine.group { feed in
            var names: [ItemName] = []
            let head = try feed.changes(in: notes, after: token) {
                names.append($0.name)
                return true
            }
            return (names, head.token)
        }
    }

    @Test func aReaderResumesFromItsToken() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let (first, token) = try changes(after: .zero)
        #expect(first == ["a"])
        #expect(try changes(after: token).0.isEmpty)
        try engine.group { _ = try $0.put(notes, [item("b", "1"), item("a", "", deleted: true)]) }
        #expect(try changes(after: token).0 == ["a", "b"])
        #expect(try changes(after: .zero).0 == ["b"])
    }

    @Test func aTokenBelowTheFloorHasExpired() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1"), item("b", "1"), item("c", "1")]) }
        try engine.group(at: 2000) { _ = try $0.put(notes, [item("a", "", deleted: true)]) }
        try engine.group(at: 3000) { _ = try $0.put(notes, [item("b", "", deleted: true)]) }
        let digest = try engine.group { try $0.head(notes) }.digest
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2000), limit: 9) } == false)
        #expect(try engine.group { try $0.head(notes) }.floor == 0)
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2001), limit: 1) } == true)
        #expect(try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 2001), limit: 1) } == false)
        let head = try engine.group { try $0.head(notes) }
        #expect(head.floor == 2 && head.digest == digest && head.token.sequence == 3)
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: 1)) } == .changeTokenExpired)
        #expect(try changes(after: ChangeToken(epoch: 1, sequence: 2)).0 == ["b"])
        #expect(try changes(after: .zero).0 == ["c"])
    }

    @Test func aNewEpochExpiresEveryToken() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        let (_, old) = try changes(after: .zero)
        try engine.raiseEpoch()
        let head = try engine.group { try $0.head(notes) }
        let epoch = head.token.epoch
        #expect(epoch > 1 && head.token.sequence == 1)
        #expect(code { _ = try changes(after: old) } == .changeTokenExpired)
        #expect(
            try engine.group { try $0.put(notes, [item("b", "1")]) }.token == ChangeToken(epoch: epoch, sequence: 2))
        #expect(try changes(after: head.token).0 == ["b"])
    }

    @Test func aTokenOfTheLostFutureHasExpired() throws {
        try engine.group { _ = try $0.put(notes, [item("a", "1")]) }
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: 2)) } == .changeTokenExpired)
        #expect(code { _ = try changes(after: ChangeToken(epoch: 1, sequence: .max)) } == .changeTokenExpired)
    }

    @Test func pagesEndBetweenTransactions() throws {
        for round in 0..<5 {
            try engine.group { _ = try $0.put(notes, (0..<3).map { item("\(round)-\($0)", "x") }) }
        }
        var token = ChangeToken.zero
        var sizes: [Int] = []
        var more = true
        while more {
            let page = try engine.group { try $0.page(of: notes, after: token, limit: 4) }
            #expect(Set(page.items.map(\.sequence)).count * 3 == page.items.count)
            sizes.append(page.items.count)
            (token, more) = (page.token, page.hasMore)
        }
        #expect(sizes == [6, 6, 3])
        #expect(token == ChangeToken(epoch: 1, sequence: 5))
    }

    @Test func tombstonesThatWentLongAgoDoNotStopANewReader() throws {
        for round in 0..<6 { try engine.group { _ = try $0.put(notes, [item("\(round)", "x")]) } }
        try engine.group { _ = try $0.put(notes, [item("5", "", deleted: true)]) }
        _ = try engine.group { try $0.compactTombstones(before: Timestamp(milliseconds: 5000), limit: 9) }
        #expect(try engine.group { try $0.head(notes) }.floor == 7)
        var names: [ItemName] = []
        var token = ChangeToken.zero
        var more = true
        while more {
            let page = try engine.group { try $0.page(of: notes, after: token, limit: 2) }
            names += page.items.map(\.name)
            (token, more) = (page.token, page.hasMore)
        }
        #expect(names == ["0", "1", "2", "3", "4"])
    }
}
