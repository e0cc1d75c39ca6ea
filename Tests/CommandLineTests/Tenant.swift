import Foundation
import Synchronization
import Testing

/// A person with an account, whose devices have their homes in one folder.
protocol Resident: Sendable {
    var folder: String { get }
    /// The command line of the deployment's operator.
    var nephos: Program { get }
    var accountName: String { get }
    /// What a device signs in with.
    var connection: String { get async throws }
}

extension Resident {
    /// The command line of the person who is signed in.
    var person: Program {
        var program = nephos
        program.environment["NEPHOS_PASSWORD"] = "correct horse battery"
        return program
    }

    /// Makes the account, and signs the first device in.
    func moveIn() async throws {
        let made = try await person.run("account", "create", accountName)
        try #require(made.status == 0, "\(made.errors)")
        try await signIn(person, "d")
    }

    /// Signs in another device of the same person.
    func anotherDevice(_ name: String) async throws -> Program {
        let device = device(name)
        try await signIn(device, name)
        return device
    }

    /// Makes another account, and signs in a device of it.
    func anotherPerson() async throws -> Program {
        let (account, device) = (accountName + "-other", device("other-person"))
        let made = try await person.run("account", "create", account)
        try #require(made.status == 0, "\(made.errors)")
        try await signIn(device, "other-person", account: account)
        return device
    }

    private func device(_ name: String) -> Program {
        var device = person
        device.environment["NEPHOS_HOME"] = folder + "/home-of-" + name
        return device
    }

    private func signIn(_ device: Program, _ name: String, account: String? = nil) async throws {
        let signIn = try await device.run(
            "sign-in", try await connection, "--account", account ?? accountName, "--device-name", name)
        try #require(signIn.status == 0, "\(signIn.errors)")
    }
}

/// A person with an account of her own, on the deployment that the tests of one run share.
///
/// For tests that need a server and look at nothing of it but what is their account's.
struct Tenant: Resident {
    private static let count = Atomic(0)
    private static let shared = Task {
        let household = try await Household()
        try await household.start()
        return (household, try await household.connection)
    }

    /// Within the deployment's, and gone with it at the latest.
    let folder: String
    let nephos: Program
    let accountName = "ann-\(count.wrappingAdd(1, ordering: .relaxed).newValue)"
    let connection: String

    fileprivate init() async throws {
        let (household, connection) = try await Self.shared.value
        self.connection = connection
        folder = household.folder + "/" + accountName
        var program = household.nephos
        program.environment["NEPHOS_HOME"] = folder + "/home"
        nephos = program
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    }
}

/// Runs the body with a person who is signed in, on the deployment that is shared.
func withTenant(_ body: (Tenant) async throws -> Void) async throws {
    let tenant = try await Tenant()
    defer { try? FileManager.default.removeItem(atPath: tenant.folder) }
    try await tenant.moveIn()
    try await body(tenant)
}
