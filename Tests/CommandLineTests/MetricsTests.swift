import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// What services tell in numbers to whoever watches over them.
@Suite struct MetricsTests {
    /// Metrics by name and labels, as they were written.
    private static func values(_ text: String) -> [String: Double] {
        var values: [String: Double] = [:]
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            guard let space = line.lastIndex(of: " ") else { continue }
            values[String(line[..<space])] = Double(line[space...].dropFirst())
        }
        return values
    }

    private static func scrape(_ port: Int, _ headers: String = "Accept: text/plain") async throws -> String {
        let answer = try await Web.get("http://127.0.0.1:\(port)/metrics", headers)
        try #require(answer.status == "200")
        return String(decoding: answer.body, as: UTF8.self)
    }

    @Test func whatWasWrittenIsCounted() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_KEYVALUE_HEALTH_PORT": "\(port)"])
            let before = Self.values(try await Self.scrape(port))
            for number in 1...5 {
                #expect(try await house.person.run("kv", "set", "colour", "\(number)").status == 0)
            }
            let text = try await Self.scrape(port)
            let after = Self.values(text)
            func rise(_ name: String) -> Double { (after[name] ?? -1) - (before[name] ?? 0) }
            let pushes = "{method=\"PushKeys\"}"
            #expect(rise("nephos_requests_total{method=\"PushKeys\",code=\"ok\"}") == 5)
            #expect(rise("nephos_request_duration_seconds_count" + pushes) == 5)
            #expect(rise("nephos_request_duration_seconds_bucket{method=\"PushKeys\",le=\"+Inf\"}") == 5)
            let taken = rise("nephos_request_duration_seconds_sum" + pushes)
            #expect(taken > 0.000_05 && taken < 10)
            #expect(rise("nephos_flush_duration_seconds_count") >= 5)
            #expect(rise("nephos_group_requests_sum") >= 5)
            #expect(rise("nephos_groups_total") >= 5)
            #expect(rise("nephos_feed_position") == 5)
            #expect(rise("nephos_request_bytes_total") > 5 * 50)
            #expect(rise("nephos_reply_bytes_total") > 5 * 20)
            #expect(after["nephos_follower_lag{followed=\"identity\"}"] == 0)
            #expect(after["nephos_follower_silence_seconds{followed=\"identity\"}"].map { $0 < 5 } == true)
            #expect(after["nephos_build_info{service=\"keyvalue\",version=\"\(serviceKitVersion)\"}"] == 1)
            #expect(after["nephos_database_bytes"].map { $0 >= 4096 } == true)
            #expect(after["nephos_disk_free_bytes"].map { $0 > 0 } == true)
            #expect(after["nephos_memory_limit_bytes"] == 2_147_483_648)
            #expect(after["process_resident_memory_bytes"].map { $0 > 1_000_000 } == true)
            #expect(after["process_open_fds"].map { $0 > 5 && $0 < 1000 } == true)
            #expect(after["process_max_fds"].map { $0 >= 256 } == true)
            let start = after["process_start_time_seconds"] ?? 0
            #expect(abs(start - Date().timeIntervalSince1970) < 120)
            // Each family says what it is, once.
            let families = text.split(separator: "\n").filter { $0.hasPrefix("# TYPE ") }
                .map { $0.split(separator: " ")[2] }
            #expect(families.count == Set(families).count && families.count > 30)
            for family in families { #expect(text.contains("# HELP \(family) ")) }
            // Nothing of a person.
            let words = Set(text.split { !$0.isLetter }.map(String.init))
            #expect(words.isDisjoint(with: [Household.accountName, "colour"]) && !text.contains("acc_"))
        }
    }

    @Test func whoMovesContentTellsOfIt() async throws {
        let ports = try ServiceName.all.map { ($0, try Web.freePort()) }
        try await withHousehold { house in
            try await house.begin(
                Dictionary(
                    uniqueKeysWithValues: ports.map { ("NEPHOS_\($0.rawValue.uppercased())_HEALTH_PORT", "\($1)") }))
            for (service, port) in ports {
                let isTold = Deployment.contentServices.contains(service)
                var values = Self.values(try await Self.scrape(port))
                // Some are read beside the loop first.
                let deadline = ContinuousClock.now + .seconds(120)
                while isTold, values["nephos_content_segments"] == nil, ContinuousClock.now < deadline {
                    try await Task.sleep(for: .milliseconds(50))
                    values = Self.values(try await Self.scrape(port))
                }
                for name in [
                    "received_bytes_total", "received_plain_bytes_total", "received_chunks_total", "sent_bytes_total",
                    "sent_chunks_total",
                    "held_bytes", "unsent_bytes", "segments", "segment_bytes", "live_bytes", "damaged_chunks",
                ] {
                    #expect(values["nephos_content_" + name] == (isTold ? 0 : nil), "\(service) \(name)")
                }
            }
        }
    }

    @Test func openMetricsIsForWhoeverAsksForIt() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_KEYVALUE_HEALTH_PORT": "\(port)"])
            let text = try await Self.scrape(
                port, "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
            #expect(text.hasSuffix("# EOF\n"))
            #expect(text.contains("# TYPE nephos_groups counter\n") && text.contains("\nnephos_groups_total "))
            #expect(!(try await Self.scrape(port)).contains("# EOF"))
        }
    }
}
