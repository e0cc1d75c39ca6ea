internal import CNephosSodium
internal import Foundation
internal import NephosBus
internal import NephosCore

/// Who listens at an address: a TCP connection that begins CURVE's handshake, and is closed as soon as that tells.
///
/// libzmq tries again and again by itself, and does not say why it does not get through: a server opens the first
/// message of a handshake (HELLO) with its own key, and hangs up without a word when it cannot.
enum ConnectProbe {
    /// Longer than a way to the other side of the world and back.
    private static let patienceMilliseconds: Int32 = 500

    /// Blocks for at most ``patienceMilliseconds`` for each step and key, and for the search of a name.
    static func presence(at endpoint: String, _ serverKeys: [PublicKey]) -> Presence {
        let address = endpoint.replacing("tcp://", with: "")
        guard let colon = address.lastIndex(of: ":") else { return .server }
        let host = address[..<colon].filter { $0 != "[" && $0 != "]" }
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        let port = String(address[address.index(after: colon)...])
        switch getaddrinfo(String(host), port, &hints, &found) {
        case 0: break
        case EAI_NONAME: return .nobody
        default: return .server
        }
        defer { freeaddrinfo(found) }
        // Any address and any key behind which the server may be is enough.
        var result = Presence.nobody
        var next = found
        while let candidate = next {
            for key in serverKeys {
                switch presence(at: candidate.pointee, key) {
                case .server: return .server
                case .stranger: result = .stranger
                case .nobody: break
                }
            }
            next = candidate.pointee.ai_next
        }
        return result
    }

    private static func presence(at address: addrinfo, _ serverKey: PublicKey) -> Presence {
        let descriptor = socket(address.ai_family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return .server }
        defer { close(descriptor) }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        if connect(descriptor, address.ai_addr, address.ai_addrlen) != 0 {
            guard errno == EINPROGRESS else { return meansNobody(errno) ? .nobody : .server }
            guard isReady(descriptor, POLLOUT) else { return .server }
            var number: Int32 = 0
            var size = socklen_t(MemoryLayout<Int32>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size)
            guard number == 0 else { return meansNobody(number) ? .nobody : .server }
        }
        return greet(descriptor, serverKey)
    }

    private static func meansNobody(_ number: Int32) -> Bool {
        [ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN, EADDRNOTAVAIL].contains(number)
    }

    private static func isReady(_ descriptor: Int32, _ what: Int32) -> Bool {
        var waiting = pollfd(fd: descriptor, events: Int16(what), revents: 0)
        return poll(&waiting, 1, patienceMilliseconds) > 0
    }

    // MARK: The handshake's beginning (ZeroMQ RFC 23 and 26)

    private static let mechanism = Array("CURVE".utf8)

    private static func greet(_ descriptor: Int32, _ serverKey: PublicKey) -> Presence {
        guard let hello = hello(to: serverKey) else { return .server }
        let greeting =
            [0xff] + [UInt8](repeating: 0, count: 8) + [0x7f, 3, 1] + mechanism
            + [UInt8](repeating: 0, count: 64 - 12 - mechanism.count)
        guard send(greeting, descriptor) else { return .server }
        // One that hangs up before its greeting may have too many connections: that proves nothing.
        guard case .bytes(let theirs) = receive(greeting.count, descriptor) else { return .server }
        guard theirs[0] == 0xff, theirs[9] & 1 == 1, Array(theirs[12..<32].prefix(mechanism.count)) == mechanism else {
            return .stranger
        }
        guard send(hello, descriptor) else { return .server }
        return switch receive(1, descriptor) {
        case .end: .stranger
        case .bytes, .nothing: .server
        }
    }

    /// The command HELLO, with its frame's head, under a key that is used this once.
    private static func hello(to serverKey: PublicKey) -> [UInt8]? {
        var publicKey = [UInt8](repeating: 0, count: Int(crypto_box_PUBLICKEYBYTES))
        var secretKey = [UInt8](repeating: 0, count: Int(crypto_box_SECRETKEYBYTES))
        guard sodium_init() >= 0, crypto_box_keypair(&publicKey, &secretKey) == 0 else { return nil }
        let shortNonce: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 1]
        let nonce = Array("CurveZMQHELLO---".utf8) + shortNonce
        let zeros = [UInt8](repeating: 0, count: 64)
        var box = [UInt8](repeating: 0, count: zeros.count + Int(crypto_box_MACBYTES))
        guard crypto_box_easy(&box, zeros, UInt64(zeros.count), nonce, serverKey.bytes, secretKey) == 0 else {
            return nil
        }
        let body = [5] + Array("HELLO".utf8) + [1, 0] + [UInt8](repeating: 0, count: 72) + publicKey + shortNonce + box
        return [4, UInt8(body.count)] + body
    }

    private static func send(_ bytes: [UInt8], _ descriptor: Int32) -> Bool {
        // Few enough for the kernel's buffer of a new connection.
        Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count
    }

    private enum Received {
        case bytes([UInt8])
        /// The connection was closed.
        case end
        /// Not so much, in time.
        case nothing
    }

    private static func receive(_ count: Int, _ descriptor: Int32) -> Received {
        var bytes = [UInt8](repeating: 0, count: count)
        var got = 0
        while got < count {
            guard isReady(descriptor, POLLIN) else { return .nothing }
            let result = bytes[got...].withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, count - got, 0) }
            guard result > 0 else { return result == 0 || errno == ECONNRESET ? .end : .nothing }
            got += result
        }
        return .bytes(bytes)
    }
}
