import NephosCore
import NephosSimulation
import NephosWire
import Testing

import struct Foundation.Date

/// What is in canonical form is taken as it is, so a wrong yes would be stored.
@Suite struct CanonicalFormTests {
    private static let good: [[UInt8]] = {
        var random = SplitMix64(seed: 3)
        return (0..<300).map { _ in PropertyValue.random(using: &random, nesting: 4).canonicalBytes }
    }()

    private func isCanonical(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes(CanonicalForm.has) }

    @Test func whatIsEncodedIsInIt() {
        for bytes in Self.good { #expect(isCanonical(bytes)) }
    }

    @Test func whatIsInItComesOutOfDecodingAndEncodingAsItWentIn() throws {
        var count = 0
        for bytes in BadBytes(4000, from: Self.good, seed: 4) where isCanonical(bytes) {
            count += 1
            #expect(try PropertyValue(canonicalBytes: bytes).canonicalBytes == bytes, "\(bytes.prefix(64))")
        }
        #expect(count > 200)
    }

    /// Far from 1970 a `Date` cannot tell each microsecond from the next: the one that is chosen stays.
    @Test(arguments: [-6e9 ... -4e9, 4e9...9e9, -1e11...1e11, -9e12...9e12])
    func datesAreWrittenAsTheyAreReadAgain(_ seconds: ClosedRange<Double>) throws {
        var random = SplitMix64(seed: 5)
        for _ in 0..<2000 {
            let date = Date(timeIntervalSinceReferenceDate: .random(in: seconds, using: &random))
            let bytes = PropertyValue.date(date).canonicalBytes
            #expect(isCanonical(bytes))
            #expect(try PropertyValue(canonicalBytes: bytes).canonicalBytes == bytes)
        }
    }
}
