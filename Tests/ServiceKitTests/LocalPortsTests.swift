import Foundation
import NephosServiceKit
import Testing

@Suite struct LocalPortsTests {
    @Test func anAddressThatSomebodyListensAtIsNotFree() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        try withUnsafeMutablePointer(to: &address) {
            try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                try #require(bind(descriptor, $0, length) == 0)
                try #require(listen(descriptor, 1) == 0)
                try #require(getsockname(descriptor, $0, &length) == 0)
            }
        }
        let endpoint = "tcp://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
        #expect(!LocalPorts.isFree(endpoint))
        close(descriptor)
        #expect(LocalPorts.isFree(endpoint))
    }

    @Test func whatIsNoAddressIsLeftForTheServiceToJudge() {
        for endpoint in ["", "tcp://", "tcp://cloud.example:7400", "tcp://127.0.0.1:99999", "ipc:///tmp/x"] {
            #expect(LocalPorts.isFree(endpoint))
        }
    }

    @Test func anAddressThatStandsForAllIsKnownHoweverItIsSpelled() {
        for host in ["0.0.0.0", "0", "0x0", "0.0", "::", "::0", "0::", "0:0:0:0:0:0:0:0", "::0.0.0.0", "[::]", "*"] {
            #expect(LocalPorts.isWildcard(host), "\(host)")
        }
        #expect(LocalPorts.isWildcard("::ffff:0.0.0.0") && LocalPorts.isWildcard("::ffff:0:0"))
        for host in ["127.0.0.1", "::1", "0.0.0.1", "::ffff:127.0.0.1", "localhost", "cloud.example", "", "fe80::"] {
            #expect(!LocalPorts.isWildcard(host), "\(host)")
        }
    }
}
