import Crypto
import NephosCore
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

import struct Foundation.Data

@testable import NephosServiceKit

/// What a service knows of identity's directory does not give way to what an old copy of identity says.
@Suite struct DirectoryTests {
    @Test func aLockGivesWayToANewerWordAlone() throws {
        let locked = try standing(.locked, version: 3)
        #expect(locked.outweighs(try standing(.active, version: 2)))
        #expect(!locked.outweighs(try standing(.active, version: 4)))
        #expect(!locked.outweighs(try standing(.closed, version: 1)))
        var directory = Directory()
        for fact in [locked, try standing(.active, version: 2)] { directory.learn(fact) }
        #expect(directory.standing(of: AccountID("acct_a")) == .locked)
        directory.learn(try standing(.active, version: 4))
        #expect(directory.standing(of: AccountID("acct_a")) == .active)
    }

    @Test func aClosedAccountStaysClosed() throws {
        let closed = try standing(.closed, version: 1)
        #expect(closed.outweighs(try standing(.active, version: 9)))
        #expect(closed.outweighs(try standing(.locked, version: 9)))
        #expect(!closed.outweighs(closed))
    }

    @Test func theEndOfAKeyMovesNoFurtherAway() throws {
        let ends = try key(retires: 1_000)
        #expect(ends.outweighs(try key(retires: 0)))
        #expect(ends.outweighs(try key(retires: 2_000)))
        #expect(!ends.outweighs(try key(retires: 500)))
        #expect(!(try key(retires: 0)).outweighs(ends))
        var directory = Directory()
        for fact in [ends, try key(retires: 0), try key(retires: 2_000)] { directory.learn(fact) }
        #expect(directory.tokenKeys["k"]?.retires == Timestamp(milliseconds: 1_000))
    }

    /// What is on disk is told from what comes in the same way, so that a restart changes nothing.
    @Test func whatIsStoredDoesNotGiveWayEither() throws {
        let engine = try SQLiteEngine.inMemory()
        defer { engine.close() }
        try engine.migrate(Directory.migrations)
        let now = Timestamp(milliseconds: 100)
        let stored = try engine.write { transaction in
            for item in [
                try item(of: .locked, version: 3), try item(of: .active, version: 2), try item(retires: 1_000),
                try item(retires: 0),
            ] {
                try Directory.store(item, try #require(DirectoryFact(item)), at: now, in: transaction)
            }
            return try Directory.stored(in: transaction)
        }
        var directory = Directory()
        for fact in stored { directory.learn(fact) }
        #expect(directory.standing(of: AccountID("acct_a")) == .locked)
        #expect(directory.tokenKeys["k"]?.retires == Timestamp(milliseconds: 1_000))
    }

    private func standing(_ state: WireAccountState.State, version: UInt64) throws -> DirectoryFact {
        try #require(DirectoryFact(try item(of: state, version: version)))
    }

    private func item(of state: WireAccountState.State, version: UInt64) throws -> FeedItem {
        var wire = WireAccountState()
        wire.accountID = "acct_a"
        wire.state = state
        wire.version = version
        return FeedItem(
            name: "account/acct_a", deleted: false, digest: .empty, size: 0, body: try wire.serializedBytes())
    }

    private func key(retires: UInt64) throws -> DirectoryFact {
        try #require(DirectoryFact(try item(retires: retires)))
    }

    private func item(retires: UInt64) throws -> FeedItem {
        var wire = WireTokenKeyState()
        wire.keyID = "k"
        wire.publicKey = Self.publicKey
        wire.retiresAt = retires
        return FeedItem(name: "token-key/k", deleted: false, digest: .empty, size: 0, body: try wire.serializedBytes())
    }

    private static let publicKey = Curve25519.Signing.PrivateKey().publicKey.rawRepresentation
}
