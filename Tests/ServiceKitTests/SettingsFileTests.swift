import Foundation
import NephosCore
import Testing

@testable import NephosServiceKit

@Suite struct SettingsFileTests {
    @Test func valuesAreReadAndCommentsKept() throws {
        var file = try SettingsFile("# ours\n\nNEPHOS_HEALTH_PORT = 7490\nNEPHOS_DOCUMENTS_PUBLISH_URL=https://a?b=c\n")
        #expect(file.values["NEPHOS_HEALTH_PORT"] == "7490")
        #expect(file.values["NEPHOS_DOCUMENTS_PUBLISH_URL"] == "https://a?b=c")
        try file.set("NEPHOS_HEALTH_PORT", to: "7500")
        try file.set("NEPHOS_LOG_LEVEL", to: "debug")
        #expect(
            file.text
                == "# ours\n\nNEPHOS_HEALTH_PORT=7500\nNEPHOS_DOCUMENTS_PUBLISH_URL=https://a?b=c\nNEPHOS_LOG_LEVEL=debug\n"
        )
        try file.set("NEPHOS_HEALTH_PORT", to: nil)
        #expect(file.values.count == 2)
        #expect(try SettingsFile(file.text) == file)
    }

    @Test func linesMayEndAsWindowsEditorsEndThem() throws {
        let file = try SettingsFile("# ours\r\nNEPHOS_HEALTH_PORT=7490\r\n")
        #expect(file.values == ["NEPHOS_HEALTH_PORT": "7490"])
    }

    @Test(arguments: ["x", "HOME=1", "nephos_x=1", "NEPHOS_X", "=1"])
    func malformedLineIsNamed(_ line: String) {
        let error = #expect(throws: CloudError.self) { try SettingsFile("\n\(line)\n") }
        #expect(error?.code == .configurationInvalid)
        #expect(error?.details["line"] == "2")
    }

    @Test(arguments: ["a\nNEPHOS_X=1", " a", "a ", "a\0b", "debug\r"])
    func valueThatNoLineHoldsIsRefused(_ value: String) throws {
        var file = SettingsFile()
        #expect(throws: CloudError.self) { try file.set("NEPHOS_X", to: value) }
        #expect(file == SettingsFile())
    }

    @Test func everyNameHasItsServices() {
        #expect(SettingNames.services(of: "NEPHOS_HEALTH_PORT") == ServiceName.all)
        #expect(SettingNames.services(of: "NEPHOS_DOCUMENTS_PUBLISH_URL") == [.documents])
        #expect(SettingNames.services(of: "NEPHOS_KEYVALUE_BUDGET_CAPACITY") == [.keyValue])
        #expect(SettingNames.services(of: "NEPHOS_KEYVALUE_PUBLISH_URL").isEmpty)
        #expect(SettingNames.all.allSatisfy { !SettingNames.services(of: $0).isEmpty })
        #expect(Set(SettingNames.all).count == SettingNames.all.count)
    }
}
