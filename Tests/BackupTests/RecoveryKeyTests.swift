import Foundation
import NephosCore
import Testing

@testable import NephosBackup

@Suite struct RecoveryKeyTests {
    @Test func whatWasWrittenDownIsTheSameKey() throws {
        for _ in 0..<200 {
            let key = RecoveryKey()
            #expect(key.text.count == 35)
            #expect(try RecoveryKey(key.text).text == key.text)
            #expect(try RecoveryKey(key.text).publicKey == key.publicKey)
            // As people write: small letters, no hyphens, letters for digits.
            let written = key.text.lowercased().replacing("-", with: " ").replacing("0", with: "o")
                .replacing("1", with: "l")
            #expect(try RecoveryKey(written).text == key.text)
            #expect(try PublicRecoveryKey(key.publicKey.text) == key.publicKey)
            #expect(try PublicRecoveryKey(key.publicKey.text.lowercased()) == key.publicKey)
        }
    }

    @Test func oneWrongCharacterIsNoticed() throws {
        let key = RecoveryKey()
        var missed = 0
        for index in key.text.indices where key.text[index] != "-" {
            for other in "0123456789ABCDEFGHJKMNPQRSTVWXYZ" where other != key.text[index] {
                var text = key.text
                text.replaceSubrange(index...index, with: String(other))
                if (try? RecoveryKey(text)) != nil { missed += 1 }
            }
        }
        // Each of 930 passes by chance once in four million.
        #expect(missed == 0)
        var half = key.publicKey.text
        half.replaceSubrange(half.startIndex...half.startIndex, with: half.first == "0" ? "2" : "0")
        #expect(throws: CloudError.self) { try PublicRecoveryKey(half) }
    }

    @Test func theTwoHalvesAreNotTakenForEachOther() {
        let key = RecoveryKey()
        #expect { _ = try PublicRecoveryKey(key.text) } throws: {
            ($0 as? CloudError)?.message.contains("on no host") == true
        }
        #expect { _ = try RecoveryKey(key.publicKey.text) } throws: {
            ($0 as? CloudError)?.message.contains("public half") == true
        }
        for text in ["", "-", String(repeating: "-", count: 35), "é", String(repeating: "U", count: 30), "\u{0}"] {
            #expect(throws: CloudError.self) { try RecoveryKey(text) }
            #expect(throws: CloudError.self) { try PublicRecoveryKey(text) }
        }
    }

    @Test func onlyTheKeyOpensWhatWasSealed() throws {
        let key = RecoveryKey()
        let plain = Array("secret".utf8)
        let sealed = key.publicKey.seal(plain)
        #expect(try key.open(sealed) == plain)
        var changed = sealed
        changed[changed.count - 1] ^= 1
        for (bytes, key) in [(sealed, RecoveryKey()), (changed, key), ([], key), (Array(sealed.prefix(47)), key)] {
            #expect { try key.open(bytes) } throws: { ($0 as? CloudError)?.code == .wrongCredentials }
        }
    }

    /// What is on paper today opens what was sealed years ago: the form never changes.
    @Test func theFormIsAsItWas() throws {
        let key = try RecoveryKey(Golden.key)
        #expect(key.publicKey.text == Golden.half)
        #expect(key.publicKey.id == Golden.id)
    }

    private enum Golden {
        static let key = "9DXSY-63TVC-5BBA5-YEC4D-D8R0F-3545M"
        static let half = "FQJ791MV-3BRCP1PC-ZZM33E7M-6P9YWGTA-PBK0A5WE-NYAFV9P2-ZSF40FC7"
        static let id = "74ZKS1TB"
    }
}
