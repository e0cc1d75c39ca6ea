import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Whatever happens, gathering and updates give what a fresh look gives.
@Suite struct QueryHistoryTests {
    private static let queries: [(predicate: String, folder: String, sorts: String)] = [
        ("TRUEPREDICATE", "/", "path"), ("name LIKE '*.pdf'", "/", "-size,name"), ("kind == 'file'", "a/b", "name[cd]"),
        ("size > 3 OR kind == 'folder'", "a", "-modified"), ("state != 'current'", "/", ""), ("TRUEPREDICATE", "c", ""),
    ]

    @Test(arguments: [1, 2, 3, 4, 5, 6, 7, 8] as [UInt64])
    func gatheringAndUpdatesGiveWhatAFreshLookGives(seed: UInt64) async throws {
        try await withContainers(seed: seed) { cloud in
            var chance = SplitMix64(seed: seed)
            let home = cloud.root + "/shared"
            let reading = try await cloud.open(home)
            // Another process of the same home, and another device.
            var writers = [reading, try await cloud.open(home), try await cloud.open()]
            for writer in writers { try await writer.settle() }
            var readers: [(reader: QueryReader, folder: String)] = []
            for round in 0..<12 {
                // Some look from the start, others come while things change.
                if round < Self.queries.count {
                    let (predicate, folder, sorts) = Self.queries[round]
                    let query = try reading.container.query(
                        predicate, scope: folder == "/" ? .container : .folder(folder),
                        sortedBy: sorts.isEmpty ? [] : DocumentSort.parse(sorts),
                        batchMax: Int.random(in: 1...7, using: &chance))
                    readers.append((QueryReader(query), folder))
                }
                for _ in 0..<Int.random(in: 1...6, using: &chance) {
                    await Self.change(writers[Int.random(in: 0..<3, using: &chance)].container, &chance)
                }
                if Bool.random(using: &chance) {
                    for writer in writers { try? await writer.settle() }
                }
                if round == 6 {
                    writers[1].session.close()
                    writers[1] = try await cloud.open(home)
                }
                cloud.simulation.pass(.seconds(3))
                try await Self.compare(readers, reading.container, "seed \(seed), round \(round)")
            }
            for reader in readers { #expect(reader.reader.now.error == nil) }
        }
    }

    private static let names = ["a", "b", "c", "a/b", "a/c", "a/b/c", "x.pdf", "a/x.pdf", "a/b/Y.pdf", "a/b/y", "c/Z"]

    /// Does something that may well be impossible.
    private static func change(_ container: UbiquityContainer, _ chance: inout SplitMix64) async {
        let first = names[Int.random(in: 0..<names.count, using: &chance)]
        let second = names[Int.random(in: 0..<names.count, using: &chance)]
        switch Int.random(in: 0..<10, using: &chance) {
        case 0...2:
            let size = [0, 2, 5, 5000][Int.random(in: 0..<4, using: &chance)]
            _ = try? await container.put(Data(count: size), at: first, makesFolders: true)
        case 3: _ = try? await container.makeFolder(at: first, makesParents: true)
        case 4...6: _ = try? await container.move(first, to: second, replaces: true)
        case 7: _ = try? await container.trash([first])
        case 8: _ = try? await container.trash.restore()
        default: if let batch = try? await container.trash([first]) { _ = try? await container.trash.remove(batch) }
        }
    }

    private static func compare(
        _ readers: [(reader: QueryReader, folder: String)], _ container: UbiquityContainer, _ place: String
    ) async throws {
        for (reader, folder) in readers {
            var expected = try await container.expected(reader.query, in: folder)
            var isEqual = false
            for _ in 0..<50 where !isEqual {
                let wanted = expected
                isEqual = await reader.wait(looks: 40) { $0.isGathered && $0.items == wanted }
                // What was sent meanwhile may have been answered.
                expected = try await container.expected(reader.query, in: folder)
            }
            #expect(isEqual, "\(place): \(reader.query.predicate)")
            #expect(reader.now.contradictions.isEmpty, "\(place): \(reader.query.predicate)")
            guard !reader.query.sorts.isEmpty else { continue }
            // The order of what it knows is the one in which it is gathered afresh.
            var fresh: [DocumentID] = []
            for try await event in reader.query {
                guard case .gathered(let entries) = event else { break }
                fresh += entries.map(\.id)
            }
            let known = reader.now.items.values.sorted { reader.query.isSorted($0, before: $1) }
            #expect(fresh == known.map(\.id), "\(place): \(reader.query.predicate)")
        }
    }
}
