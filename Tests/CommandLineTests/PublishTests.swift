import Foundation
import NephosSimulation
import Testing

/// Links to files, from the command line to whoever has one, through the whole programs.
@Suite struct PublishTests {
    @Test func aFileIsPublishedFetchedListedAndEnded() async throws {
        let port = try Web.freePort()
        try await withHousehold(["--web-port", "\(port)"]) { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/report é.bin")
            let bytes = Data((0..<1_500_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try bytes.write(to: URL(fileURLWithPath: file))
            #expect(try await person.run("docs", "ls").status == 0)
            // What still waits to be sent is sent first.
            #expect(try await person.run("docs", "put", file, "report é.bin", "--offline").status == 0)
            let made = try await person.run("docs", "publish", "report é.bin", "--expires", "2h", "--json")
            #expect(made.status == 0, "\(made)")
            let link = try #require(try JSONSerialization.jsonObject(with: Data(made.output.utf8)) as? [String: Any])
            let url = try #require(link["url"] as? String)
            #expect(url.hasPrefix("http://localhost:\(port)/p/") && url.hasSuffix("/report%20%C3%A9.bin"), "\(url)")
            let whole = try await Web.get(url)
            #expect(whole.status == "200" && whole.body == bytes)
            let part = try await Web.get(url, "Range: bytes=700000-700009")
            #expect(part.status == "206" && part.body == bytes[700_000..<700_010])
            #expect(try await Web.get(url, "Range: bytes=1500000-").status == "416")
            let headers = try await person.run(shell: "curl -sI '\(url)' | tr -d '\\r'").output
            for header in [
                "Content-Disposition: attachment; filename*=UTF-8''report%20%C3%A9.bin", "Content-Length: 1500000",
                "Content-Security-Policy: sandbox; default-src 'none'", "X-Content-Type-Options: nosniff",
            ] {
                #expect(headers.contains("\n\(header)\n"), "\(headers)")
            }
            let tag = try #require(headers.firstMatch(of: /ETag: (.*)/)?.1)
            #expect(try await Web.get(url, "If-None-Match: \(tag)").status == "304")
            // Unknown and ended links get the same answer.
            let never = try await Web.get("http://localhost:\(port)/p/\(String(repeating: "a", count: 27))/x")
            #expect(never.status == "404")
            for path in ["/p/", "/p", "/p/a", "/p//a", "/p/%00", "/p/\(String(repeating: "a", count: 5000))"] {
                let other = try await Web.get("http://localhost:\(port)\(path)")
                #expect(other == never || path == "/p", "\(path)")
            }
            #expect(
                try await person.run(shell: "curl -s -o /dev/null -w '%{http_code}' -X PUT -d x '\(url)'").output
                    == "405")

            #expect(try await person.run("docs", "rm", "report é.bin").status == 0)
            #expect(try await Web.get(url).body == bytes)
            let id = try #require(link["id"] as? String)
            let links = try await person.run("docs", "links")
            #expect(links.status == 0 && links.output.contains(id) && links.output.contains("1.5 MB"), "\(links)")
            let secret = try #require(url.split(separator: "/").dropLast().last)
            #expect(!links.output.contains(secret))
            #expect(try await person.run("docs", "unpublish", id).status == 0)
            #expect(try await Web.get(url).status == "404")
            #expect(try await person.run("docs", "unpublish", id).status == 2)
            #expect(try await person.run("docs", "unpublish", "x").status == 64)
            #expect(try await person.run("docs", "links").output == "There are no links.\n")
            #expect(try await person.run("docs", "publish", "no").status == 2)
            #expect(try await person.run("docs", "publish", "/Documents").status == 64)
            #expect(try await person.run("docs", "publish", "no", "--expires", "7").status == 64)
        }
    }

    @Test func aContentThatIsLostIsNotPublished() async throws {
        try await withHousehold(["--web-port", "\(try Web.freePort())"]) { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/long")
            try Data((0..<600_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }).write(
                to: URL(fileURLWithPath: file))
            #expect(try await person.run("docs", "put", file, "long").status == 0)
            // One that was made before shows that nobody gets anything by it.
            #expect(try await person.run("docs", "publish", "long").status == 0)
            #expect(try await person.run("docs", "links", "--json").output.contains(#""damaged":false"#))
            #expect(try await person.run("docs", "evict", "long").status == 0)
            try SegmentDamage.damageAll(in: house.deployment)
            let got = try await person.run("docs", "get", "long", house.folder + "/got")
            #expect(got.status == 8 && got.errors.contains("path: /Documents/long"), "\(got)")
            let lost = try await person.run("docs", "publish", "long")
            #expect(lost.status == 8 && lost.errors.contains("Put the file again"), "\(lost)")
            #expect(lost.errors.contains("path: long"), "\(lost)")
            let broken = try await person.run("docs", "links")
            #expect(broken.output.contains("long  (broken: the server has lost some of it)"), "\(broken)")
            #expect(try await person.run("docs", "links", "--json").output.contains(#""damaged":true"#))
            #expect(try await person.run("docs", "put", file, "long").status == 0)
            #expect(try await person.run("docs", "publish", "long").status == 0)
            #expect(try await !person.run("docs", "links").output.contains("broken"))
        }
    }

    /// What is wrong with it is said by the command that starts it, as of any other setting.
    @Test func aCertificateThatCannotBeUsedIsAWrongConfiguration() async throws {
        let port = try Web.freePort()
        try await withHousehold(["--web-port", "\(port)"]) { house in
            let (chain, key) = (house.folder + "/chain.pem", house.folder + "/key.pem")
            var nephos = house.nephos
            nephos.environment.merge(["NEPHOS_WEB_CERTIFICATE": chain, "NEPHOS_WEB_KEY": key]) { $1 }
            let absent = try await nephos.run("up")
            #expect(absent.status == 8 && absent.errors.contains("file: \(chain)"), "\(absent)")
            #expect(
                absent.errors.contains("cannot be read") && absent.errors.contains("service: web"), "\(absent)")
            for file in [chain, key] {
                #expect(
                    FileManager.default.createFile(
                        atPath: file, contents: Data("nothing".utf8), attributes: [.posixPermissions: 0o600]))
            }
            let malformed = try await nephos.run("up", "--json")
            #expect(malformed.status == 8, "\(malformed)")
            #expect(malformed.errors.contains(#""message":"The file has no certificates in PEM.""#), "\(malformed)")
            #expect(house.held.isEmpty)
        }
    }

    @Test func aDeploymentThatPublishesNothingSaysSo() async throws {
        try await withTenant { house in
            let file = house.folder + "/a"
            try Data("a".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "put", file).status == 0)
            let refused = try await house.person.run("docs", "publish", "a")
            #expect(refused.status == 4 && refused.errors.contains("NEPHOS_WEB_PORT"), "\(refused)")
        }
    }
}
