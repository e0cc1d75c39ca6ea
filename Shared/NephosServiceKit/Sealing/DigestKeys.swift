public import NephosCore

/// Opened digest keys, by their sealed form: a digest key whose making was
/// rolled back is never found again.
public final class DigestKeys {
    private struct Place: Hashable {
        var scope: ScopeName
        var sealed: [UInt8]
    }

    /// Emptied when full: opening one again costs a microsecond.
    private static let countMax = 10_000
    private var opened: [Place: [UInt8]] = [:]
    /// Asked for last, and most likely next: comparing costs less than hashing.
    private var latest: (place: Place, key: [UInt8])?

    public init() {}

    /// - Parameter open: Opens the sealed form.
    public func key(of scope: ScopeName, sealed: [UInt8], open: () throws -> [UInt8]) rethrows -> [UInt8] {
        if let latest, latest.place.sealed == sealed, latest.place.scope == scope { return latest.key }
        let place = Place(scope: scope, sealed: sealed)
        if let key = opened[place] {
            latest = (place, key)
            return key
        }
        let key = try open()
        if opened.count >= Self.countMax { opened.removeAll() }
        opened[place] = key
        latest = (place, key)
        return key
    }

    public func drop(partition: Int) {
        opened = opened.filter { $0.key.scope.partition != partition }
        if latest?.place.scope.partition == partition { latest = nil }
    }

    /// 32 random bytes.
    public static func random() -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        return (0..<4).flatMap { _ in withUnsafeBytes(of: generator.next() as UInt64) { [UInt8]($0) } }
    }
}
