import Foundation
import NephosCore
import Testing

/// Files keep their dates, whatever year they are of.
@Suite(.serialized) struct DocumentDateTests {
    /// Seconds since 1970 and nanoseconds of a file's date.
    private func date(of file: String) throws -> [Int] {
        var status = stat()
        try #require(lstat(file, &status) == 0)
        return [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
    }

    private func set(_ seconds: Int, _ nanoseconds: Int = 0, of file: String) throws {
        let times = Array(repeating: timespec(tv_sec: seconds, tv_nsec: nanoseconds), count: 2)
        try #require(utimensat(AT_FDCWD, file, times, AT_SYMLINK_NOFOLLOW) == 0)
    }

    @Test func datesBefore1970AndAfter2262ComeBack() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let folder = house.folder + "/files"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            // 1913, the first moment of 1970, now, and 2400.
            let seconds = ["old": -1_785_931_200, "epoch": 0, "new": 1_750_000_000, "far": 13_569_465_600]
            for (name, second) in seconds {
                try Data(name.utf8).write(to: URL(fileURLWithPath: folder + "/" + name))
                try set(second, second == 0 ? 0 : 123_456_789, of: folder + "/" + name)
            }
            let put = try await one.run("docs", "put", "-r", folder)
            #expect(put.status == 0, "\(put)")
            // Dates end in 2262.
            let end = [9_223_372_036, 854_775_807]
            for name in ["old", "epoch", "new"] {
                let got = try await two.run("docs", "get", "files/" + name, house.folder + "/" + name)
                #expect(got.status == 0, "\(got)")
                #expect(try date(of: house.folder + "/" + name) == date(of: folder + "/" + name), "\(name)")
            }
            #expect(try await two.run("docs", "get", "files/far", house.folder + "/far").status == 0)
            #expect(try date(of: house.folder + "/far") == end)

            let list = try await two.run("docs", "ls", "files").output
            #expect(list.contains("1913-05-") && list.contains("1970-01-01 ") && list.contains("2262-04-"), "\(list)")
            let found = try await two.run("docs", "find", "--where", "kind == 'file'", "--sort", "modified").output
            #expect(
                found == ["old", "epoch", "new", "far"].map { "/Documents/files/\($0)\n" }.joined(), "\(found)")
            let json = try await two.run("docs", "ls", "files/old", "--json").output
            #expect(json.contains(#""modified":-1785931199877"#), "\(json)")
            let before = try await two.run("docs", "find", "--where", "modified < date('1960-01-01')").output
            #expect(before == "/Documents/files/old\n", "\(before)")
        }
    }

    @Test func filesOfAPackageKeepDatesBefore1970() async throws {
        try await withTenant { house in
            let package = house.folder + "/a.bundle"
            try FileManager.default.createDirectory(atPath: package, withIntermediateDirectories: true)
            for (name, second) in [("old", -1_000_000_000), ("epoch", 0)] {
                try Data(name.utf8).write(to: URL(fileURLWithPath: package + "/" + name))
                try set(second, of: package + "/" + name)
            }
            #expect(try await house.person.run("docs", "put", "--package", package).status == 0)
            let list = try await house.person.run("docs", "ls", "a.bundle").output
            #expect(list.contains("1938-04-2") && list.contains("1970-01-01 "), "\(list)")
            #expect(try await house.person.run("docs", "get", "a.bundle", house.folder + "/got").status == 0)
            #expect(try date(of: house.folder + "/got/old") == [-1_000_000_000, 0])
            #expect(try date(of: house.folder + "/got/epoch") == [0, 0])
            let member = try await house.person.run("docs", "get", "a.bundle/old", house.folder + "/member")
            #expect(member.status == 0, "\(member)")
            #expect(try date(of: house.folder + "/member") == [-1_000_000_000, 0])
        }
    }

    @Test func foldersKeepTheirDates() async throws {
        try await withTenant { house in
            let folder = house.folder + "/tree"
            for name in ["/sub/deep", "/empty"] {
                try FileManager.default.createDirectory(atPath: folder + name, withIntermediateDirectories: true)
            }
            try Data("x".utf8).write(to: URL(fileURLWithPath: folder + "/sub/deep/x"))
            let folders = ["/sub/deep": 1_000_000_000, "/sub": -5, "/empty": 1_100_000_000, "": 1_200_000_000]
            for (name, second) in folders { try set(second, of: folder + name) }
            #expect(try await house.person.run("docs", "put", "-r", folder).status == 0)
            let got = try await house.anotherDevice("second").run("docs", "get", "-r", "tree", house.folder + "/got")
            #expect(got.status == 0, "\(got)")
            for (name, second) in folders { #expect(try date(of: house.folder + "/got" + name) == [second, 0]) }
        }
    }
}
