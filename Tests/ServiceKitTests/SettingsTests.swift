import Configuration
import NephosCore
import Testing

@testable import NephosServiceKit

@Suite struct SettingsTests {
    private func settings(_ values: [String: String], of service: ServiceName = .keyValue) -> Settings {
        let reader = ConfigReader(provider: EnvironmentVariablesProvider(environmentVariables: values))
        return Settings(reader.scoped(to: "nephos"), of: service, names: values.keys.sorted())
    }

    private func refusal(_ body: () throws -> Void) -> CloudError? {
        do { try body() } catch { return error as? CloudError }
        return nil
    }

    @Test func whatIsSaidForOneServiceGoesBeforeWhatIsSaidForAll() throws {
        let both = settings(["NEPHOS_HEALTH_PORT": "1", "NEPHOS_KEYVALUE_HEALTH_PORT": "2"])
        #expect(try both.integer("health_port", in: 1...9, for: .all) == 2)
        #expect(try settings(["NEPHOS_HEALTH_PORT": "1"]).integer("health_port", in: 1...9, for: .all) == 1)
        // What may be said for one service alone is not taken from all.
        #expect(try settings(["NEPHOS_BUDGET_CAPACITY": "1"]).integer("budget_capacity", in: 1...9) == nil)
    }

    @Test func anEmptyValueIsNone() throws {
        let empty = settings(["NEPHOS_KEYVALUE_HEALTH_PORT": "", "NEPHOS_HEALTH_PORT": "3"])
        #expect(try empty.integer("health_port", in: 1...9, for: .all) == 3)
        #expect(settings(["NEPHOS_LOG_LEVEL": ""]).text("log_level", for: .all) == nil)
    }

    @Test(arguments: ["x", "1.5", "0", "10", "99999999999999999999", " 5", "5 ", "-1", "0x5"])
    func whatIsNoNumberInRangeIsRefusedWithItsKey(_ value: String) throws {
        let refused = refusal {
            _ = try settings(["NEPHOS_KEYVALUE_HEALTH_PORT": value]).integer("health_port", in: 1...9, for: .all)
        }
        #expect(refused?.code == .configurationInvalid)
        #expect(refused?.details["key"] == "NEPHOS_KEYVALUE_HEALTH_PORT")
        #expect(refused?.details["value"] == value)
        #expect(refused?.message.contains("from 1 to 9") == true)
    }

    /// The key that is named is the one that has to be changed.
    @Test func theKeyThatSaysItIsNamed() throws {
        let refused = refusal {
            _ = try settings(["NEPHOS_HEALTH_PORT": "x"]).integer("health_port", in: 1...9, for: .all)
        }
        #expect(refused?.details["key"] == "NEPHOS_HEALTH_PORT")
    }

    @Test func everyBudgetIsReadAndRefused() throws {
        let keys = ["BUDGET", "ACCOUNT_BUDGET", "STRANGER_BUDGET"].flatMap {
            ["\($0)_CAPACITY", "\($0)_REFILL_PER_SECOND"]
        }
        for key in keys + ["BUDGET_SPARE_PERCENT"] {
            let refused = refusal { _ = try BudgetConfiguration(settings(["NEPHOS_KEYVALUE_\(key)": "many"])) }
            #expect(refused?.details["key"] == "NEPHOS_KEYVALUE_\(key)")
        }
        let read = try BudgetConfiguration(settings(["NEPHOS_KEYVALUE_BUDGET_CAPACITY": "5"]))
        #expect(read.device.capacity == 5)
    }

    @Test func unknownSettingIsNamed() throws {
        let own = settings([
            "NEPHOS_KEYVALUE_HEALTH_PORT": "5", "NEPHOS_KEYVALUE_HELATH_PORT": "5", "NEPHOS_IDENTITY_X": "",
            "NEPHOS_HOME": "", "PATH": "",
        ])
        _ = try own.integer("health_port", in: 1...9, for: .all)
        #expect(own.unknown == ["NEPHOS_KEYVALUE_HELATH_PORT"])
    }
}
