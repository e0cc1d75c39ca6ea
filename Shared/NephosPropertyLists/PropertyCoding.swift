package import NephosCore

/// Swift values as property-list values, and back.
package enum PropertyCoding {
    /// The value; nil for an optional that is nil.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`; the details name the path, and the reason.
    package static func encode(_ value: some Encodable) throws(CloudError) -> PropertyValue? {
        try PropertyEncoder.encode(value)
    }

    /// - Throws: ``CloudError`` `.invalidArguments` when the value is none of the type; the details name the path, and
    ///   the reason.
    package static func decode<T: Decodable>(_ type: T.Type, _ value: PropertyValue) throws(CloudError) -> T {
        try PropertyDecoder.decode(type, value)
    }
}
