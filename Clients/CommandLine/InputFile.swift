import Foundation
import NephosCore

/// A file that somebody names, which may be a pipe or a device too, or standard input (`-`).
enum InputFile {
    /// All of it.
    ///
    /// - Parameter bytesMax: Nobody needs more; reading stops there, since a pipe may have no end.
    /// - Parameter tooLong: What is said when there is more; nil: that no value may be so long.
    /// - Throws: ``CloudError`` `.quotaExceeded` when there is more, or `tooLong`; `.unknownItem` when there is no such file;
    ///   else an error of the system's that names it.
    static func read(_ file: String, bytesMax: Int, orElse tooLong: CloudError? = nil) throws -> Data {
        let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        let file = file == "-" ? "standard input" : file
        guard descriptor >= 0 else { throw failure(file) }
        defer { if descriptor != STDIN_FILENO { close(descriptor) } }
        var data = Data()
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = Foundation.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            // As it was left to the command; a file is closed by nobody else.
            guard count >= 0 || errno != EBADF else {
                throw CloudError(.invalidArguments, "Standard input is closed: there is nothing to read.")
            }
            guard count >= 0 else { throw failure(file) }
            if count == 0 { return data }
            data.append(contentsOf: buffer[..<count])
            guard data.count <= bytesMax else {
                throw tooLong
                    ?? CloudError(
                        .quotaExceeded, "The input is longer than any value may be. Nothing was stored.",
                        details: ["limit": "value_bytes", "maximum": "\(bytesMax)", "file": file])
            }
        }
    }

    /// What comes from standard input, piece by piece, to its end.
    static func readInput(_ take: (Data) async throws -> Void) async throws {
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        while true {
            let count = Foundation.read(STDIN_FILENO, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 || errno != EBADF else {
                throw CloudError(.invalidArguments, "Standard input is closed: there is nothing to read.")
            }
            guard count >= 0 else { throw failure("standard input") }
            if count == 0 { return }
            try await take(Data(buffer[..<count]))
        }
    }

    /// By the system's number, as it is now. A person's file that is not there is no damage of a home or a deployment.
    static func failure(_ file: String) -> any Error {
        guard errno != ENOENT, errno != ENOTDIR else {
            return CloudError(
                .unknownItem, "There is no such file.",
                details: ["file": file, "reason": String(cString: strerror(errno))])
        }
        guard errno != EISDIR else {
            return CloudError(
                .invalidArguments, "This is a folder. Name a file.",
                details: ["file": file])
        }
        return NSError(domain: NSPOSIXErrorDomain, code: Int(errno), userInfo: [NSFilePathErrorKey: file])
    }
}
