internal import Foundation

/// Whether anybody listens at an address: a plain TCP connection, closed as soon as it is made.
///
/// libzmq tries again and again by itself, and does not say why it does not get through.
enum ConnectProbe {
    /// Longer than a way to the other side of the world and back.
    private static let patienceMilliseconds: Int32 = 500

    /// Blocks for at most ``patienceMilliseconds``, and for the search of a name.
    static func isRefused(_ endpoint: String) -> Bool {
        let address = endpoint.replacing("tcp://", with: "")
        guard let colon = address.lastIndex(of: ":") else { return false }
        let host = address[..<colon].filter { $0 != "[" && $0 != "]" }
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        let port = String(address[address.index(after: colon)...])
        switch getaddrinfo(String(host), port, &hints, &found) {
        case 0: break
        case EAI_NONAME: return true
        default: return false
        }
        defer { freeaddrinfo(found) }
        // Any one that may be there is enough.
        var next = found
        while let candidate = next {
            if !isRefused(candidate.pointee) { return false }
            next = candidate.pointee.ai_next
        }
        return true
    }

    private static func isRefused(_ address: addrinfo) -> Bool {
        let descriptor = socket(address.ai_family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        if connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 { return false }
        guard errno == EINPROGRESS else { return means(errno) }
        var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        guard poll(&waiting, 1, patienceMilliseconds) > 0 else { return false }
        var number: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size)
        return means(number)
    }

    private static func means(_ number: Int32) -> Bool {
        [ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN, EADDRNOTAVAIL].contains(number)
    }
}
