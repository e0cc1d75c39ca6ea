import Foundation
import NephosSimulation
import Testing

/// The folder of a service's contents is not there, and its database is: that is told wherever somebody looks, and no file
/// is taken for damaged.
@Suite(.serialized) struct MissingContentTests {
    private func move(_ from: String, _ to: String) throws {
        try FileManager.default.moveItem(atPath: from, toPath: to)
    }

    @Test(arguments: [("documents", false), ("documents", true), ("records", false)])
    func isToldToOperatorsAndDevices(_ service: String, isUnreadable: Bool) async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            let key = "NEPHOS_\(service.uppercased())_HEALTH_PORT"
            try await house.begin([key: "\(port)"])
            var nephos = house.nephos
            nephos.environment[key] = "\(port)"
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (file, got) = (house.folder + "/film.bin", house.folder + "/got")
            let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try bytes.write(to: URL(fileURLWithPath: file))
            let (put, get): ([String], [String])
            if service == "documents" {
                (put, get) = (["docs", "put", file], ["docs", "get", "film.bin", got])
            } else {
                (put, get) = (
                    ["records", "save", "film", "--asset", "bytes=\(file)", "--type", "Film"],
                    ["records", "asset", "film", "bytes", "-o", got]
                )
            }
            let saved = try await one.run(put)
            #expect(saved.status == 0, "\(saved)")
            #expect(try await house.nephos.run("status").status == 0)

            let folder = house.deployment + "/data/\(service)/content"
            let away = house.folder + "/away"
            #expect(try await house.nephos.run("down").status == 0)
            try move(folder, away)
            // What can be listed as a folder by nobody, whoever runs the service.
            if isUnreadable {
                try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
                for partition in try FileManager.default.contentsOfDirectory(atPath: away) where partition != ".lock" {
                    try Data().write(to: URL(fileURLWithPath: folder + "/" + partition))
                }
            }
            #expect(try await nephos.run("up").status == 0)
            let status = try await house.nephos.run("status")
            #expect(status.status == 8 && status.output.contains("content missing"), "\(status)")
            #expect(status.output.contains("\(service) cannot find, or read, the files of contents"), "\(status)")
            let ready = try await Web.get("http://127.0.0.1:\(port)/ready")
            let reason = String(decoding: ready.body, as: UTF8.self)
            #expect(ready.status == "503" && reason.contains("contents are not where they were put"), "\(reason)")

            let lost = try await two.run(get)
            #expect(lost.status != 0 && lost.errors.contains("does not find its files of contents"), "\(lost)")
            #expect(!lost.errors.contains("Another device may have it"), "\(lost)")
            let device = try await two.run("verify", "--service", service)
            #expect(device.status == 6 && device.output.contains("does not find its files of contents"), "\(device)")
            if service == "documents" {
                let documents = try await two.run("docs", "status")
                #expect(documents.status == 6, "\(documents)")
                #expect(documents.output.contains("The server does not find its files of contents"), "\(documents)")
                #expect(!documents.output.contains("is damaged on the server"), "\(documents)")
                let json = try await two.run("docs", "status", "--json")
                #expect(json.output.contains(#""content_missing":true"#), "\(json)")
            }

            // Once it is there again all goes on by itself.
            #expect(try await house.nephos.run("down").status == 0)
            try FileManager.default.removeItem(atPath: folder)
            try move(away, folder)
            #expect(try await nephos.run("up").status == 0)
            #expect(try await house.nephos.run("status").status == 0)
            #expect(try await two.run(get).status == 0)
            #expect(FileManager.default.contents(atPath: got) == bytes)
            #expect(try await two.run("status").status == 0)
        }
    }

    /// Its disk is mounted while the service runs: what came before that is not hidden by it.
    @Test func whatIsPutMeanwhileWaitsOnItsDevice() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (first, second) = (house.folder + "/first.bin", house.folder + "/second.bin")
            for (file, seed) in [(first, 7), (second, 11)] {
                let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> seed) })
                try bytes.write(to: URL(fileURLWithPath: file))
            }
            #expect(try await one.run("docs", "put", first).status == 0)
            let (folder, away) = (house.deployment + "/data/documents/content", house.folder + "/away")
            #expect(try await house.nephos.run("down").status == 0)
            try move(folder, away)
            #expect(try await house.nephos.run("up").status == 0)
            let put = try await one.run("docs", "put", second)
            #expect(put.output.contains("It is kept on this device: The server does not find its files"), "\(put)")
            let status = try await one.run("docs", "status")
            #expect(status.status == 8 && status.output.contains("1 (300.0 kB to be sent)"), "\(status)")

            // As if the disk were mounted over what is there.
            try FileManager.default.removeItem(atPath: folder)
            try move(away, folder)
            var sent = try await one.run("docs", "status")
            // The service looks for the folder twice a minute.
            for _ in 0..<120 where sent.status != 0 {
                try await Task.sleep(for: .seconds(1))
                sent = try await one.run("docs", "status")
            }
            #expect(sent.status == 0, "\(sent)")
            for file in [first, second] {
                let name = String(file.split(separator: "/").last ?? "")
                let got = house.folder + "/got-" + name
                let fetched = try await two.run("docs", "get", name, got)
                #expect(fetched.status == 0, "\(fetched)")
                #expect(FileManager.default.contentsEqual(atPath: got, andPath: file))
            }
        }
    }

    /// Its disk is gone, and there is no backup: whoever runs it says so, and a device brings back what it has.
    @Test func whatIsLostForGoodComesBackFromDevices() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (file, got) = (house.folder + "/film.bin", house.folder + "/got")
            let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try bytes.write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", file).status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            let folder = house.deployment + "/data/documents/content"
            try FileManager.default.removeItem(atPath: folder)
            #expect(try await house.nephos.run("up").status == 0)
            let status = try await house.nephos.run("status")
            #expect(status.status == 8 && status.output.contains("accept-loss"), "\(status)")
            #expect(try await two.run("docs", "get", "film.bin", got).status != 0)

            try Data().write(to: URL(fileURLWithPath: folder + "/accept-loss"))
            // It is looked at within half a minute, or as soon as somebody wants something.
            var lost = try await two.run("docs", "get", "film.bin", got)
            for _ in 0..<40 where !lost.errors.contains("cannot be read any more") {
                try await Task.sleep(for: .seconds(1))
                lost = try await two.run("docs", "get", "film.bin", got)
            }
            #expect(lost.errors.contains("cannot be read any more"), "\(lost)")
            var back = lost
            for _ in 0..<20 where back.status != 0 {
                _ = try await one.run("docs", "status")
                back = try await two.run("docs", "get", "film.bin", got)
            }
            #expect(back.status == 0 && FileManager.default.contents(atPath: got) == bytes, "\(back)")
            var now = try await house.nephos.run("status")
            for _ in 0..<40 where now.status != 0 {
                try await Task.sleep(for: .seconds(1))
                now = try await house.nephos.run("status")
            }
            #expect(now.status == 0, "\(now)")
        }
    }

    /// One of several files, while the service runs: what lay in it is damaged, and the operator is told.
    @Test func aDamagedContentMakesStatusEndWith8() async throws {
        try await withHousehold { house in
            try await house.begin()
            let file = house.folder + "/film.bin"
            try Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }).write(
                to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "put", file).status == 0)
            let two = try await house.anotherDevice("second")
            try SegmentDamage.damageAll(in: house.deployment)
            #expect(try await two.run("docs", "get", "film.bin", house.folder + "/got").status != 0)
            try await Task.sleep(for: .seconds(1))
            let status = try await house.nephos.run("status")
            #expect(status.status == 8, "\(status)")
            #expect(status.output.contains("damaged") && status.output.contains("cannot be read any more"), "\(status)")
        }
    }
}
