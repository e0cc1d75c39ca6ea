import Core
import TestKit
import Testing
import Wire

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
}
