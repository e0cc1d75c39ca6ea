#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// A part of the earth between two parallels and two meridians: one of four that a larger one is divided into.
///
/// A place's code has the bits of its latitude and longitude in turn. So the places of a cell have codes that follow one
/// another, and a circle is covered by few ranges of them.
struct GeographicCell {
    /// How often the earth was divided.
    var depth: UInt64
    /// Of so many on each side, counted from the south and the west.
    var latitude: UInt64
    var longitude: UInt64

    /// Bits of each coordinate.
    private static let bits: UInt64 = 32

    static func code(of place: PredicateLocation) -> UInt64 {
        spread(step(place.latitude, within: 90)) << 1 | spread(step(place.longitude, within: 180))
    }

    private static func step(_ degrees: Double, within limit: Double) -> UInt64 {
        guard degrees > -limit else { return 0 }
        guard degrees < limit else { return 1 << bits - 1 }
        // Just below the limit it is rounded up to it.
        return min(UInt64((degrees + limit) / (2 * limit) * 0x1p32), 1 << bits - 1)
    }

    /// With a 0 before each bit.
    private static func spread(_ number: UInt64) -> UInt64 {
        var spread = number
        for (shift, mask) in [
            (16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f),
            (2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555),
        ] as [(UInt64, UInt64)] {
            spread = (spread | spread << shift) & mask
        }
        return spread
    }

    private var codes: ClosedRange<UInt64> {
        let shift = 2 * (Self.bits - depth)
        let first = depth == 0 ? 0 : (Self.spread(latitude) << 1 | Self.spread(longitude)) << shift
        return first...(first + (shift == 64 ? .max : 1 << shift - 1))
    }

    private var south: Double { Double(latitude) * 180 / Double(1 << depth) - 90 }
    private var north: Double { Double(latitude + 1) * 180 / Double(1 << depth) - 90 }
    private var west: Double { Double(longitude) * 360 / Double(1 << depth) - 180 }
    private var east: Double { Double(longitude + 1) * 360 / Double(1 << depth) - 180 }

    private var parts: [GeographicCell] {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map {
            GeographicCell(depth: depth + 1, latitude: 2 * latitude + $0.0, longitude: 2 * longitude + $0.1)
        }
    }

    /// Ranges of codes, in their order, that have all places of a circle, and some more.
    ///
    /// - Parameter metres: Its radius.
    static func codes(around center: PredicateLocation, metres: Double, rangesMax: Int = 24) -> [ClosedRange<UInt64>] {
        guard metres >= 0 else { return [] }
        let box = Box(around: center, metres: metres)
        var cells = [GeographicCell(depth: 0, latitude: 0, longitude: 0)]
        while let depth = cells.first?.depth, depth < 26 {
            let next = cells.flatMap(\.parts).filter(box.touches)
            guard next.count <= rangesMax else { break }
            cells = next
        }
        var ranges: [ClosedRange<UInt64>] = []
        for codes in cells.map(\.codes).sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if let last = ranges.last, last.upperBound &+ 1 == codes.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound...codes.upperBound
            } else {
                ranges.append(codes)
            }
        }
        return ranges
    }

    /// What a circle lies within; its longitudes may go beyond the meridian that is opposite to Greenwich.
    private struct Box {
        var south, north, west, east: Double

        init(around center: PredicateLocation, metres: Double) {
            // A little more, for what calculating with reals loses.
            let angle = metres / 6_371_008.8 * (1 + 1e-9) + 1e-9
            let degrees = angle * 180 / .pi
            (south, north) = (center.latitude - degrees, center.latitude + degrees)
            (west, east) = (-180, 180)
            // With a pole it has all longitudes.
            guard south > -90, north < 90, angle < .pi / 2 else { return }
            let ratio = sin(angle) / cos(center.latitude * .pi / 180)
            guard ratio < 1 else { return }
            let width = asin(ratio) * 180 / .pi * (1 + 1e-9) + 1e-9
            guard width < 180 else { return }
            (west, east) = (center.longitude - width, center.longitude + width)
        }

        func touches(_ cell: GeographicCell) -> Bool {
            guard cell.south <= north, cell.north >= south else { return false }
            return [-360.0, 0, 360].contains { cell.west + $0 <= east && cell.east + $0 >= west }
        }
    }
}

extension PredicateDistance {
    /// Keys of all places within the circle, and of some more, in their order; nil: what is outside is asked for.
    public var keyRanges: [IndexKeyRange]? {
        guard relation == .less || relation == .lessOrEqual else { return nil }
        return GeographicCell.codes(around: center, metres: metres).map { IndexKeyRange(codes: $0) }
    }
}
