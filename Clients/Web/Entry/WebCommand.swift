import ArgumentParser
import Foundation
import Logging
import NephosBus
import NephosCore
import NephosHTTP
import NephosKit
import NephosServiceEntry
import NephosServiceKit
import NephosWeb
import NephosZeroMQ

@main
struct WebCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-web",
        abstract: "Serves the accounts of a deployment to browsers and to programs for WebDAV.")

    @Option(
        help: "The deployment's folder, with the roster (default: $NEPHOS_DEPLOYMENT).", completion: .directory)
    var deployment: String?

    @Option(help: "This program's own folder (default: $NEPHOS_DATA).", completion: .directory)
    var data: String?

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    @Flag(help: "Start nothing; ask the one that runs here whether it answers. Not where it has a certificate.")
    var isReady = false

    func run() async throws {
        let environment = ProcessInfo.processInfo.environment
        guard let deployment = deployment ?? environment["NEPHOS_DEPLOYMENT"],
            let data = data ?? environment["NEPHOS_DATA"]
        else { throw ValidationError("Name the folders with --deployment and --data.") }
        guard !isReady else {
            let configuration = try WebConfiguration(.of(.web, deployment: deployment), Logger(label: "nephos-web"))
            return try HealthFace.requireAnswer(configuration.host, configuration.port, "/live")
        }
        do {
            try await runClient(
                .web, deployment: deployment, data: data, logLevel: logLevel,
                isSupervised: supervised
            ) { config in
                let processors = ProcessInfo.processInfo.activeProcessorCount
                let transport = SharedLoops(ZeroMQTransport(), count: min(max(processors / 2, 1), 4))
                let configuration = try WebConfiguration(config.settings, config.logger)
                let documents = SessionRecord.Service(try config.roster.entry(of: .documents))
                let links = try LinkClient(documents: documents, transport: transport)
                let door = try WebDoor(
                    folder: config.dataDirectory, connection: try config.roster.innerConnectionString(),
                    hasCertificate: configuration.certificate != nil, isBehindProxy: configuration.isBehindProxy,
                    links: links, logger: config.logger
                ) { home, options throws(CloudError) in
                    // As services reach each other: in a container network devices' addresses lead nowhere.
                    var options = options
                    options.isAlone = true
                    options.addresses = config.roster.services.map(SessionRecord.Service.init)
                    return try await Session.open(
                        home: home, transport: transport, options: options, logger: config.logger)
                }
                let server = try WebServer(configuration, door)
                if configuration.certificate == nil, !configuration.isLocal, !configuration.isBehindProxy {
                    config.logger.warning(
                        "Others reach this address, and it has no certificate: passwords travel in clear text. Put a proxy with TLS before it.",
                        metadata: ["host": "\(configuration.host)"])
                }
                return { await server.stop() }
            }
        } catch is LoggedFailure { throw ExitCode.failure }
    }
}

extension SessionRecord.Service {
    fileprivate init(_ entry: Roster.Entry) {
        self.init(
            service: entry.service, publicKey: entry.publicKey, nextPublicKey: entry.nextPublicKey,
            requests: [entry.requests], subscriptions: [entry.subscriptions].compactMap { $0 },
            bulk: [entry.bulk].compactMap { $0 })
    }
}

extension WebConfiguration {
    /// The settings `NEPHOS_WEB_HOST`, `NEPHOS_WEB_PORT`, `NEPHOS_WEB_BEHIND_PROXY`, `NEPHOS_WEB_CERTIFICATE` and
    /// `NEPHOS_WEB_KEY`.
    fileprivate init(_ settings: Settings, _ logger: Logger) throws(CloudError) {
        self.init()
        host = settings.text("host") ?? host
        port = try settings.integer("port", default: port, in: 1...65_535)
        isBehindProxy = try settings.integer("behind_proxy", default: 0, in: 0...1) == 1
        switch (settings.text("certificate"), settings.text("key")) {
        case (let chain?, let key?):
            certificate = try HTTPCertificate(chainFile: chain, keyFile: key) { problem in
                logger.error(
                    "The certificate was replaced, and the new one cannot be used. The one before stays: put it right.",
                    metadata: ["reason": "\(problem.message)"])
            }
        case (nil, nil): break
        case (_?, nil): throw settings.invalid("key", "It names the file of the certificate's key.")
        case (nil, _?): throw settings.invalid("certificate", "It names the file of the certificates.")
        }
    }
}
