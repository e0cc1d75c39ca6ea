import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// Whatever is saved, deleted, and said by roles: each finds what it may read, and nothing else is gone through for it.
@Suite struct CircleModelTests {
    @Test(arguments: 0..<12) func everybodyFindsWhatItMayRead(_ seed: UInt64) throws {
        let house = try PublicHouse(seed: seed)
        var generator = SplitMix64(seed: seed)
        let devices = try [TestCloud.accountName, PublicHouse.other, PublicHouse.administrator].map {
            try house.device($0)
        }
        let stranger = try house.stranger()
        let types = ["A", "B", "C"]
        var widths = Dictionary(uniqueKeysWithValues: types.map { ($0, 3) })
        var known: [String: (type: String, maker: Int)] = [:]
        for _ in 0..<60 {
            switch Int.random(in: 0..<8, using: &generator) {
            case 0:
                // Administrators alone, the creator, who is signed in, everyone.
                let (type, width) = (
                    types[Int.random(in: 0..<3, using: &generator)], Int.random(in: 0..<4, using: &generator)
                )
                try house.setRoles(
                    of: type, creator: width == 0 ? .none : .reading(write: true),
                    signedIn: width == 2 ? .reading(create: true) : .creating,
                    everyone: width == 3 ? .reading() : .none)
                widths[type] = width
            case 1, 2:
                guard let name = known.keys.sorted().randomElement(using: &generator) else { continue }
                #expect(try devices[2].modify([.delete(name)]).codes == [nil])
                known[name] = nil
            default:
                let name = "r\(Int.random(in: 0..<25, using: &generator))"
                let (maker, type) = (
                    Int.random(in: 0..<3, using: &generator), types[Int.random(in: 0..<3, using: &generator)]
                )
                let codes = try devices[maker].modify([.save(name, ["n": .integer(1)], type: type)]).codes
                // What is there already as it is saved stays whose it was.
                if codes == [nil], known[name] == nil { known[name] = (type, maker) }
            }
            let readers = devices + [stranger]
            let number = Int.random(in: 0..<4, using: &generator)
            func mayRead(_ record: (type: String, maker: Int)) -> Bool {
                switch widths[record.type] {
                case 3: true
                case 2: number < 3
                case 1: number == 2 || number == record.maker
                default: number == 2
                }
            }
            let expected = known.filter { mayRead($0.value) }
            #expect(try readers[number].find().names == expected.keys.sorted())
            #expect(try Set(readers[number].fetch((0..<25).map { "r\($0)" }).keys) == Set(expected.keys))
            for type in types {
                let ofType = expected.filter { $0.value.type == type }
                #expect(try readers[number].find("n == 1", type: type).names == ofType.keys.sorted())
            }
        }
        // Each is in one circle, and those of administrators alone in none.
        let inCircles = known.values.filter { widths[$0.type] != 0 }.count
        #expect(try house.house.rows(of: "record_index WHERE index_number = 0") == inCircles)
    }
}
