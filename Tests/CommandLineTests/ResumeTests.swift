import Foundation
import NephosCore
import NephosSimulation
import Testing

/// A long get that is ended before it is done, and the next one.
@Suite(.serialized) struct ResumeTests {
    private static func sentBytes(_ port: Int) async throws -> Double {
        let answer = try await Web.get("http://127.0.0.1:\(port)/metrics", "Accept: text/plain")
        let lines = String(decoding: answer.body, as: UTF8.self).split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("nephos_content_sent_bytes_total ") })
        return try #require(line.split(separator: " ").last.flatMap { Double($0) })
    }

    private static func status(_ path: String) -> stat? {
        var status = stat()
        return lstat(path, &status) == 0 ? status : nil
    }

    private static func names(_ folder: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    }

    @Test(arguments: [UInt8.min...UInt8.max, 48...57])
    func aGetThatIsKilledIsGoneOnWithAndChecksWhatItFinds(bytes: ClosedRange<UInt8>) async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_DOCUMENTS_HEALTH_PORT": "\(port)"])
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            var random = SplitMix64(seed: 1)
            let size = 24_000_000
            var content = Data(capacity: size + 8)
            while content.count < size { withUnsafeBytes(of: random.next()) { content.append(contentsOf: $0) } }
            // Of few bytes it travels and lies compressed.
            let count = Int(bytes.upperBound) - Int(bytes.lowerBound) + 1
            content = Data(content.prefix(size).map { bytes.lowerBound + UInt8(Int($0) % count) })
            let folder = house.folder + "/target"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try content.write(to: URL(fileURLWithPath: house.folder + "/film"))
            #expect(try await one.run("docs", "put", house.folder + "/film").status == 0)
            let notes = try #require(two.environment["NEPHOS_HOME"]) + "/parts"

            // Twice, so that what was found is written once only.
            var number: UInt64?
            for bytes in [8_000_000, 16_000_000] {
                let running = try two.start(["docs", "get", "film", folder + "/film", "--limit-rate", "4M"])
                try await eventually("some of it has come") {
                    guard let name = Self.names(folder).first, let part = Self.status(folder + "/" + name) else {
                        return false
                    }
                    return Int(part.st_blocks) * 512 >= bytes
                }
                running.signal(SIGKILL)
                #expect(await running.outcome().status == 128 + SIGKILL)
                let names = Self.names(folder)
                try #require(names.count == 1 && names[0].hasPrefix(".nephos-") && names[0].hasSuffix(".part"))
                let part = try #require(Self.status(folder + "/" + names[0]))
                #expect(number == nil || number == UInt64(part.st_ino))
                number = UInt64(part.st_ino)
                #expect(Self.names(notes).count == 1)
            }
            // What is found there is not believed.
            let part = folder + "/" + Self.names(folder)[0]
            let descriptor = open(part, O_RDWR | O_CLOEXEC)
            var byte = content[1_000_000] ^ 1
            #expect(pwrite(descriptor, &byte, 1, 1_000_000) == 1)
            close(descriptor)

            let before = try await Self.sentBytes(port)
            let got = try await two.run("docs", "get", "film", folder + "/film")
            #expect(got.status == 0, "\(got)")
            let sent = try await Self.sentBytes(port) - before
            // Some 8 MB had not come, and a chunk was damaged.
            #expect(sent > 1000 && sent < 12_000_000, "\(sent)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/film")) == content)
            #expect(Self.names(folder) == ["film"] && Self.names(notes).isEmpty)
            #expect(Self.status(folder + "/film").map { UInt64($0.st_ino) } == number)
        }
    }
}
