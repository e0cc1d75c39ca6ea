import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

@testable import NephosBulk

/// One ticket on many connections, of which nobody says which are over.
@Suite struct LineTests {
    @Test func whatWasReadForAForgottenConnectionIsNotTakenForItsNextRequests() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let chunks = (0..<10).map { content($0, count: 5000) }
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let good = try ticket(house.open(mover))
        for number in 0...8 { try mover.send(BulkFrame.control(.greeting, .none), on: number) }
        house.cloud.network.run(for: .milliseconds(20))
        mover.clear()

        // Ten are being read for the first connection.
        house.cloud.network.offloadTime = .milliseconds(100)
        try mover.send(BulkFrame.control(.credit, good, number: 1 << 20))
        for (number, chunk) in chunks.enumerated() {
            try mover.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: id(of: chunk)))
        }
        house.cloud.network.run(for: .milliseconds(10))
        // Eight others make it the one that is forgotten, and it asks for something else.
        for number in 1...8 { try mover.send(BulkFrame.control(.credit, good, number: 1), on: number) }
        house.cloud.network.run(for: .milliseconds(10))
        try mover.send(BulkFrame.control(.credit, good, number: 1 << 20))
        try mover.send(BulkFrame.control(.get, good, number: 77, chunk: id(of: chunks[3])))
        house.cloud.network.run(for: .seconds(1))
        let answers = mover.frames.filter { $0.kind == .chunk }
        #expect(answers.map(\.number) == [77])
        #expect(answers.first?.withContent { [UInt8]($0) } == chunks[3])
    }

    /// A device whose connection breaks again and again asks anew each time, and nothing is left of what it asked before.
    @Test func whatWaitsOnLostConnectionsTakesNoOnesShare() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let perConnection = 1000
        let times = Sending.requestsOfAccountMax / perConnection + 1
        let chunk = id(of: content(1))
        // Without credit all of them wait.
        for _ in 0..<times {
            let good = try ticket(house.open(mover))
            for number in 0..<perConnection {
                try mover.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: chunk))
            }
            house.cloud.network.run(for: .milliseconds(100))
            mover.disconnect(0)
        }
        mover.clear()
        house.cloud.network.run(for: .seconds(10))
        let good = try ticket(house.open(mover))
        for number in 0..<perConnection {
            try mover.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: chunk))
        }
        house.cloud.network.run(for: .milliseconds(100))
        #expect(mover.frames.isEmpty)
        try mover.send(BulkFrame.control(.credit, good, number: 1 << 20))
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.count == perConnection)
        #expect(mover.frames.allSatisfy { $0.failure.code == .unknownItem })
    }
}
