internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosWire

/// Serves links to published files, without a sign-in.
struct LinkHandler {
    let links: LinkClient
    let request: HTTPRequest

    /// The same for an unknown link and one that has ended.
    private static let unknown = HTTPResponse(404, text: "There is nothing here.")

    /// - Returns: Nil: it asks for no link.
    func answer() async -> HTTPResponse? {
        guard request.path.hasPrefix(LinkSecret.path) else { return nil }
        guard request.method == .get || request.method == .head else {
            return HTTPResponse(405, text: "A link is only read.", headers: [(name: "Allow", value: "GET, HEAD")])
        }
        let secret = request.path.dropFirst(LinkSecret.path.count).prefix { $0 != "/" }
        guard let secret = LinkSecret(secret)?.text else { return Self.unknown }
        do {
            guard let content = ContentAnswer(try await links.read(secret, 0..<0, for: request.network)) else {
                throw CloudError(.internalError, "What is known of the link cannot be true.")
            }
            return try await content.response(to: request) { range in
                let pieces = Pieces(links, secret, range, for: request.network)
                return HTTPBodyStream { try await pieces.next() }
            }
        } catch {
            let error = CloudError(wrapping: error)
            return [.unknownItem, .permissionFailure].contains(error.code) ? Self.unknown : error.response
        }
    }

    /// The pieces of a part, one after another.
    private actor Pieces {
        private let links: LinkClient
        private let secret: String
        private let address: String
        private var rest: Range<UInt64>

        init(_ links: LinkClient, _ secret: String, _ range: Range<UInt64>, for address: String) {
            (self.links, self.secret, rest, self.address) = (links, secret, range, address)
        }

        func next() async throws -> [UInt8] {
            guard !rest.isEmpty else { return [] }
            let bytes = [UInt8](try await links.read(secret, rest, for: address).content)
            rest = min(rest.lowerBound + UInt64(bytes.count), rest.upperBound)..<rest.upperBound
            return bytes
        }
    }
}
