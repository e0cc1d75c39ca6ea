internal import Crypto
internal import Foundation
public import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// One thing that identity has said, and that every service heeds.
public enum DirectoryFact: Sendable {
    /// Its tokens are void.
    case ended(DeviceID, Ending)
    /// It ended so long ago that nothing of it can be valid.
    case forgotten(DeviceID)
    /// The version rises with each change of the standing.
    case account(AccountID, Standing, version: UInt64)
    case app(AppID, Entitlements)
    case container(ItemName, ContainerDefinition)
    case tokenKey(TokenKey)
    /// What let in whoever has no account was revoked.
    case appTokenEnded(String)
    /// Room of this owner that is held and not used is wanted back.
    case recall(owner: String)

    /// Why a device has ended.
    public enum Ending: Hashable, Sendable {
        /// Revoked, or signed out.
        ///
        /// - Parameters:
        ///   - at: When it was revoked; nil: it signed out.
        ///   - by: The name of the device that revoked it; empty: the operator did.
        case revoked(at: Timestamp?, by: String)
        /// Its refresh token was used from two places.
        case copied

        /// What the device is told.
        public var error: CloudError {
            switch self {
            case .revoked(let time, let name):
                CloudError(
                    .deviceRevoked, "This device was revoked. Sign in again.",
                    details: time.map { ["revoked_at": "\($0.milliseconds)", "revoked_by": name] } ?? [:])
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
            let time = state.endedAt == 0 ? nil : Timestamp(milliseconds: state.endedAt)
            self = .ended(DeviceID(id), state.copied ? .copied : .revoked(at: time, by: state.endedBy))
        case "account":
            guard let state = try? WireAccountState(serializedBytes: item.body) else { return nil }
            switch state.state {
            case .active: self = .account(AccountID(id), .active, version: state.version)
            case .locked: self = .account(AccountID(id), .locked, version: state.version)
            case .closed: self = .account(AccountID(id), .closed, version: state.version)
            // Of a newer identity: better too careful.
            case .UNRECOGNIZED: self = .account(AccountID(id), .locked, version: state.version)
            }
        case "app":
            guard let state = try? WireAppState(serializedBytes: item.body) else { return nil }
            self = .app(AppID(id), Entitlements(state.app, isRemoved: state.removed))
        case "container":
            guard let state = try? WireContainerState(serializedBytes: item.body) else { return nil }
            self = .container(ItemName(id), ContainerDefinition(state.definition))
        case "token-key":
            guard let state = try? WireTokenKeyState(serializedBytes: item.body),
                let key = try? Curve25519.Signing.PublicKey(rawRepresentation: state.publicKey)
            else { return nil }
            self = .tokenKey(
                TokenKey(
                    id: id, key: key, retires: state.retiresAt == 0 ? nil : Timestamp(milliseconds: state.retiresAt)))
        case "app-token":
            guard let state = try? WireAppTokenState(serializedBytes: item.body), state.revoked else { return nil }
            self = .appTokenEnded(id)
        case "recall":
            self = .recall(owner: id)
        default: return nil
        }
    }
}

extension DirectoryFact {
    /// Whether this, which is known, does not give way to what is told of the same thing.
    ///
    /// What identity says last counts, unless its database has come back from an old copy: then it says older things
    /// until it is told of the newer ones, by ``DirectoryReport``. So an account stays closed, locks and entitlements
    /// go by their versions, and a key's end never moves away.
    func outweighs(_ told: DirectoryFact) -> Bool {
        switch (self, told) {
        case (.account(_, .closed, _), .account(_, let standing, _)): standing != .closed
        case (.account(_, _, let mine), .account(_, let standing, let theirs)): standing != .closed && mine > theirs
        case (.app(_, let mine), .app(_, let theirs)): mine.version > theirs.version
        case (.container(_, let mine), .container(_, let theirs)): mine.version > theirs.version
        case (.tokenKey(let mine), .tokenKey(let theirs)):
            mine.retires.map { end in theirs.retires.map { end < $0 } ?? true } ?? false
        default: false
        }
    }
}
