import Configuration
import NephosCore
import NephosServiceKit
import Testing

@testable import NephosIdentity

@Suite struct ConfigurationTests {
    private func read(_ values: [AbsoluteConfigKey: ConfigValue]) throws -> IdentityConfiguration {
        try IdentityConfiguration(
            Settings(ConfigReader(provider: InMemoryProvider(values: values)), of: .identity))
    }

    @Test func whatIsNotSaidHasItsDefault() throws {
        let configuration = try read([["identity", "access_token_lifetime_seconds"]: "60"])
        #expect(configuration.accessTokenLifetime == .seconds(60))
        #expect(configuration.refreshTokenLifetime == .seconds(90 * 86_400))
        #expect(configuration.scryptCost == .standard)
    }

    @Test func weakPasswordHashingIsRefused() {
        #expect(code { _ = try read([["identity", "scrypt_rounds"]: "1024"]) } == .configurationInvalid)
        #expect(code { _ = try read([["identity", "scrypt_rounds"]: "40000"]) } == .configurationInvalid)
    }
}
