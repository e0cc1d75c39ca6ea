extension HTTPRequest {
    /// The bytes of a content that a request gets (RFC 9110, sections 13 and 14).
    ///
    /// - Parameters:
    ///   - tag: The content's ETag, quoted.
    ///   - length: Its bytes.
    /// - Returns: Nil: the client has the content, which is answered with 304.
    public func range(of tag: String, length: UInt64) -> ByteRange? {
        if let known = list("If-None-Match"), Self.list(known, has: tag) { return nil }
        // A part of another content is of no use to the client. With several headers it is unclear which was meant.
        let known = values(of: "If-Range")
        guard method == .get, known.isEmpty || known == [tag] else { return .whole }
        return ByteRange(header("Range"), of: length)
    }

    private static func list(_ header: String, has tag: String) -> Bool {
        header.split(separator: ",").contains { known in
            let known = known.drop { $0 == " " }.prefix { $0 != " " }
            return known == "*" || known == tag || known == "W/\(tag)"
        }
    }
}
