private import Synchronization

/// The body of a request, piece by piece. Nothing of it is read from the connection before it is asked for, so a slow
/// handler holds no more than a piece.
public struct HTTPRequestBody: Sendable {
    /// Its length in bytes, if the client has said it.
    public let length: UInt64?
    private let ask: @Sendable (@escaping Completion) -> Void

    package typealias Completion = @Sendable (Result<[UInt8], any Error>) -> Void

    /// The body ended early: the connection was closed, it was too long or too slow, or the request was answered before.
    public struct Ended: Error {
        /// Whether it has more bytes than ``HTTPLimits/bodyBytesMax``.
        public var isTooLong: Bool

        public init(isTooLong: Bool = false) { self.isTooLong = isTooLong }
    }

    package init(length: UInt64?, ask: @escaping @Sendable (@escaping Completion) -> Void) {
        self.length = length
        self.ask = ask
    }

    /// One that is in memory, for tests.
    package init(_ bytes: [UInt8]) {
        let rest = Mutex<[UInt8]?>(bytes)
        self.init(length: UInt64(bytes.count)) { completion in
            completion(
                .success(
                    rest.withLock { rest in
                        defer { rest = nil }
                        return rest ?? []
                    }))
        }
    }

    /// The next piece; empty: that was all. One call at a time.
    ///
    /// - Throws: ``Ended``: a part must not be taken for the whole.
    public func next() async throws -> [UInt8] {
        try await withCheckedThrowingContinuation { continuation in ask { continuation.resume(with: $0) } }
    }

    /// All of it.
    ///
    /// - Throws: ``Ended``, also when it has more bytes than these.
    public func all(max: Int) async throws -> [UInt8] {
        guard length ?? 0 <= UInt64(max) else { throw Ended(isTooLong: true) }
        var bytes: [UInt8] = []
        while true {
            let piece = try await next()
            guard !piece.isEmpty else { return bytes }
            bytes += piece
            guard bytes.count <= max else { throw Ended(isTooLong: true) }
        }
    }
}

/// A body that is made piece by piece; an empty piece ends it.
public final class HTTPBodyStream: HTTPBodySource {
    private let make: @Sendable () async throws -> [UInt8]
    private let onEnd: @Sendable () -> Void
    private let task = Mutex<Task<Void, Never>?>(nil)

    /// - Parameters:
    ///   - onEnd: Called once the body is not needed any more.
    ///   - next: Makes the next piece. One call at a time; its task is cancelled once the connection has ended.
    public init(
        onEnd: @escaping @Sendable () -> Void = {}, _ next: @escaping @Sendable () async throws -> [UInt8]
    ) {
        make = next
        self.onEnd = onEnd
    }

    deinit { onEnd() }

    public func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) {
        let make = make
        let next = Task {
            do { completion(.success(try await make())) } catch { completion(.failure(error)) }
        }
        task.withLock { $0 = next }
    }

    public func cancel() { task.withLock { $0?.cancel() } }
}
