import Foundation
import NephosCore
import Testing

/// Copies of documents on this machine's disk.
@Suite(.serialized) struct LocalCopyTests {
    private func status(of file: String) throws -> stat {
        var status = stat()
        try #require(lstat(file, &status) == 0)
        return status
    }

    @Test("A file of zeros takes no room on the disk, and has its length and bytes")
    func holesTakeNoRoom() async throws {
        try await withTenant { house in
            let file = house.folder + "/image"
            let length = 64 << 20
            let text = Data("text".utf8)
            let descriptor = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
            try #require(descriptor >= 0 && ftruncate(descriptor, off_t(length)) == 0)
            _ = text.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, 20 << 20) }
            close(descriptor)
            #expect(try await house.person.run("docs", "put", file).status == 0)
            let device = try await house.anotherDevice("second")
            let got = try await device.run("docs", "get", "image", house.folder + "/got")
            #expect(got.status == 0, "\(got)")
            let status = try status(of: house.folder + "/got")
            #expect(status.st_size == length && status.st_blocks * 512 < 1 << 20, "\(status.st_blocks)")
            #expect(FileManager.default.contentsEqual(atPath: file, andPath: house.folder + "/got"))
        }
    }

    @Test func aMissingFolderIsNamedAsTheFolder() async throws {
        try await withTenant { house in
            try Data("x".utf8).write(to: URL(fileURLWithPath: house.folder + "/x"))
            #expect(try await house.person.run("docs", "put", house.folder + "/x", "d/x", "-p").status == 0)
            for arguments in [["d/x", "/none/x"], ["-r", "d", house.folder + "/none/d"]] {
                let got = try await house.person.run(["docs", "get"] + arguments)
                let folder = (arguments[arguments.count - 1] as NSString).deletingLastPathComponent
                #expect(got.status == 2 && got.errors.contains("There is no such folder."), "\(got)")
                #expect(got.errors.contains(folder) && !got.errors.contains("There is no such file."), "\(got)")
            }
        }
    }

    @Test func aPathThatIsTooLongIsRefusedByALimit() async throws {
        try await withTenant { house in
            try Data("x".utf8).write(to: URL(fileURLWithPath: house.folder + "/x"))
            #expect(try await house.person.run("docs", "put", house.folder + "/x").status == 0)
            let name = house.folder + "/" + String(repeating: "n", count: 256)
            let path = house.folder + String(repeating: "/" + String(repeating: "d", count: 200), count: 22)
            for file in [name, path] {
                let got = try await house.person.run("docs", "get", "x", file)
                #expect(got.status == 3 && got.errors.contains("too long for this disk"), "\(got)")
                let put = try await house.person.run("docs", "put", file)
                #expect(put.status == 3 && put.errors.contains("too long for this disk"), "\(put)")
            }
        }
    }
}
