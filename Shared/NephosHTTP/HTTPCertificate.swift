private import Foundation
internal import NIOCore
internal import NIOSSL
public import NephosCore
private import Synchronization

/// What a server proves itself with: a chain of certificates, its own first, and the key of that, in two PEM files.
///
/// Files that are replaced are read again, for the connections that come then: no server has to be started anew for a
/// certificate that is renewed. What cannot be used then is told, and the one before stays.
public final class HTTPCertificate: Sendable {
    /// Bytes of each file.
    private static let bytesMax = 1 << 20
    /// How long the end of a connection that was closed is waited for.
    private static let shutdownTime: TimeAmount = .seconds(1)

    private struct State {
        var context: NIOSSLContext
        /// Of the files as they were read last, or could not be.
        var stamps: [Stamp]
        var looked: ContinuousClock.Instant
    }

    private let chainFile: String
    private let keyFile: String
    private let lookPause: Duration
    private let onProblem: @Sendable (CloudError) -> Void
    private let state: Mutex<State>

    /// Reads the files.
    ///
    /// - Parameters:
    ///   - chainFile: The server's own certificate first.
    ///   - keyFile: Without a passphrase; nobody but its owner and group may have it.
    ///   - lookPause: How often it is looked at most whether the files are others.
    ///   - onProblem: Gets why files that were replaced cannot be used, once for each of those, on any thread.
    /// - Throws: ``CloudError`` `.configurationInvalid`: a file cannot be read, or has not what it has to have; or the key is
    ///   another's.
    public init(
        chainFile: String, keyFile: String, lookPause: Duration = .seconds(5),
        onProblem: @escaping @Sendable (CloudError) -> Void = { _ in }
    ) throws(CloudError) {
        (self.chainFile, self.keyFile) = (chainFile, keyFile)
        (self.lookPause, self.onProblem) = (lookPause, onProblem)
        let stamps = [Stamp(chainFile), Stamp(keyFile)]
        let context = try Self.load(chainFile, keyFile)
        state = Mutex(State(context: context, stamps: stamps, looked: .now))
    }

    /// For a connection that comes now.
    var context: NIOSSLContext {
        let (context, problem) = state.withLock { state -> (NIOSSLContext, CloudError?) in
            let now = ContinuousClock.now
            guard now - state.looked >= lookPause else { return (state.context, nil) }
            state.looked = now
            let stamps = [Stamp(chainFile), Stamp(keyFile)]
            guard stamps != state.stamps else { return (state.context, nil) }
            state.stamps = stamps
            do throws(CloudError) {
                state.context = try Self.load(chainFile, keyFile)
                return (state.context, nil)
            } catch { return (state.context, error) }
        }
        if let problem { onProblem(problem) }
        return context
    }

    private static func load(_ chainFile: String, _ keyFile: String) throws(CloudError) -> NIOSSLContext {
        let chainBytes = try read(chainFile)
        var information = stat()
        guard stat(keyFile, &information) == 0, information.st_mode & 0o007 == 0 else {
            throw invalid(
                keyFile, "The key of the certificate is missing, or others may read it. Let the service alone read it.")
        }
        let keyBytes = try read(keyFile)
        let chain: [NIOSSLCertificate]
        do { chain = try NIOSSLCertificate.fromPEMBytes(chainBytes) } catch {
            throw invalid(chainFile, "The file has no certificates in PEM.")
        }
        let key: NIOSSLPrivateKey
        do {
            key = try NIOSSLPrivateKey(bytes: keyBytes, format: .pem) { (_: NIOSSLPassphraseSetter<[UInt8]>) in
                throw NoPassphrase()
            }
        } catch {
            throw invalid(keyFile, "The file has no key in PEM, or one that asks for a passphrase.")
        }
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        configuration.minimumTLSVersion = .tlsv12
        configuration.applicationProtocols = ["http/1.1"]
        configuration.shutdownTimeout = shutdownTime
        do { return try NIOSSLContext(configuration: configuration) } catch {
            throw invalid(chainFile, "The certificate cannot be used with the key. They have to belong together.")
        }
    }

    private struct NoPassphrase: Error {}

    private static func read(_ file: String) throws(CloudError) -> [UInt8] {
        guard let handle = FileHandle(forReadingAtPath: file),
            let bytes = try? handle.read(upToCount: bytesMax + 1), bytes.count <= bytesMax
        else { throw invalid(file, "The file of the certificate or of its key cannot be read.") }
        return [UInt8](bytes)
    }

    private static func invalid(_ file: String, _ message: String) -> CloudError {
        CloudError(.configurationInvalid, message, details: ["file": file])
    }

    /// What the system says of a file: another where it was replaced or written.
    private struct Stamp: Equatable {
        private let numbers: [Int64]

        init(_ file: String) {
            var status = stat()
            let isThere = stat(file, &status) == 0
            numbers =
                !isThere
                ? []
                : [
                    Int64(truncatingIfNeeded: status.st_dev), Int64(truncatingIfNeeded: status.st_ino),
                    Int64(status.st_size), Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec),
                    Int64(status.st_ctim.tv_sec), Int64(status.st_ctim.tv_nsec),
                ]
        }
    }
}

extension Channel {
    /// Closes the connection at once, without the farewell that TLS has.
    func cut() {
        eventLoop.execute {
            let context = try? self.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self)
            if let context { context.close(promise: nil) } else { self.close(promise: nil) }
        }
    }
}
