import NephosBus
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// The tokens by which a device is told of its scopes are worth nothing any more.
@Suite struct EndedTokenTests {
    @Test func oneIsExchangedForAllScopesOfItsApp() throws {
        let device = try Device.ready()
        let app = device.store.app
        let containers = (1...5).map { "container.\($0)" }
        try device.engine.changeSession { session, _ in session.setContainers(containers, of: app) }
        device.cloud.lies["RefreshToken"] = { frame in
            guard var reply = try? frame.decode(WireRefreshTokenReply.self) else { return frame }
            reply.accessToken.app.containerIds = containers
            return Frame(encoding: reply)
        }
        for container in containers {
            _ = try device.engine.open(DocumentsModel(app: app, container: container, engine: device.engine))
        }
        device.network.run(for: .seconds(1))
        let before = device.cloud.requests("Subscribe").map(\.accessToken)
        #expect(Set(before) == ["access-1"] && before.count >= 5)
        device.cloud.requests = []
        device.cloud.deliver { $0.ended = WireFailure(CloudError(.tokenExpired, "Ended.")) }
        device.network.run(for: .seconds(2))
        #expect(device.cloud.requests("RefreshToken").count == 1)
        let stores = device.cloud.requests("Subscribe").filter {
            (try? $0.body.decode(WireSubscribe.self))?.scopes.first?.service != "identity"
        }
        #expect(stores.count == 6 && stores.allSatisfy { $0.accessToken == "access-2" })
    }
}
