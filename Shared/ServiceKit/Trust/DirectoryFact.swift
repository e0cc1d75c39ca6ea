public import Core
internal import Crypto
internal import Foundation
internal import Storage
internal import SwiftProtobuf
internal import Wire

/// One thing that identity has said, and that every service heeds.
public enum DirectoryFact: Sendable {
    /// Its tokens are void.
    case ended(DeviceID, Ending)
    /// It ended so long ago that nothing of it can be valid.
    case forgotten(DeviceID)
    case account(AccountID, Standing)
    case app(AppID, Entitlements)
    case tokenKey(TokenKey)
    /// Room of this owner that is held and not used is wanted back.
    case recall(owner: String)

    /// Why a device has ended.
    public enum Ending: Sendable {
        /// Revoked, or signed out.
        case revoked
        /// Its refresh token was used from two places.
        case copied

        /// What the device is told.
        public var error: CloudError {
            switch self {
            case .revoked: CloudError(.deviceRevoked, "This device was revoked. Sign in again.")
            case .copied: .deviceCopied
            }
        }
    }

    public enum Standing: Sendable {
        case active
        case locked
        case closed
    }

    /// Whose signature makes a token.
    public struct TokenKey: Sendable {
        public var id: String
        var key: Curve25519.Signing.PublicKey
        /// From then on it makes none; nil: not known yet.
        public var retires: Timestamp?
    }

    /// The fact in an item of the directory; nil if it is none that services heed.
    init?(_ item: FeedItem) {
        guard let slash = item.name.utf8.firstIndex(of: UInt8(ascii: "/")) else { return nil }
        let name = item.name.rawValue
        let id = String(name[name.utf8.index(after: slash)...])
        guard !item.deleted else {
            guard name[..<slash] == "device" else { return nil }
            self = .forgotten(DeviceID(id))
            return
        }
        switch name[..<slash] {
        case "device":
            guard let state = try? WireDeviceState(serializedBytes: item.body), state.revoked else { return nil }
            self = .ended(DeviceID(id), state.copied ? .copied : .revoked)
        case "account":
            guard let state = try? WireAccountState(serializedBytes: item.body) else { return nil }
            switch state.state {
            case .active: self = .account(AccountID(id), .active)
            case .locked: self = .account(AccountID(id), .locked)
            case .closed: self = .account(AccountID(id), .closed)
            // Of a newer identity: better too careful.
            case .UNRECOGNIZED: self = .account(AccountID(id), .locked)
            }
        case "app":
            guard let state = try? WireAppState(serializedBytes: item.body) else { return nil }
            self = .app(AppID(id), Entitlements(state.app, isRemoved: state.removed))
        case "token-key":
            guard let state = try? WireTokenKeyState(serializedBytes: item.body),
                let key = try? Curve25519.Signing.PublicKey(rawRepresentation: state.publicKey)
            else { return nil }
            self = .tokenKey(
                TokenKey(
                    id: id, key: key, retires: state.retiresAt == 0 ? nil : Timestamp(milliseconds: state.retiresAt)))
        case "recall":
            self = .recall(owner: id)
        default: return nil
        }
    }
}
