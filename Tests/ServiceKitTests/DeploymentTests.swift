import Foundation
import NephosCore
import NephosWire
import Synchronization
import Testing

@testable import NephosServiceKit

/// The files of a deployment, and the string that leads to it.
struct DeploymentTests {
    private func withDirectory(_ body: (String) throws -> Void) throws {
        let directory = NSTemporaryDirectory() + "nephos-test-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try body(directory)
    }

    @Test func deploymentIsReadAsItWasMade() throws {
        try withDirectory { directory in
            let made = try Deployment.create(
                directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            #expect(try files.roster() == made.roster)
            for service in ServiceName.all { #expect(try files.secrets(of: service).service == service.rawValue) }
            #expect(try files.secrets(of: .keyValue).tokenSigningKey == nil)
            #expect(try files.operatorKeys() == made.operatorKeys)
            #expect(try made.roster.connectionString() == made.connection)
            #expect(throws: CloudError.self) {
                try Deployment.create(directory: directory, host: "127.0.0.1", basePort: 1, transport: KeysOnly())
            }
        }
    }

    /// The secrets are all that opens what is stored: nothing takes their place.
    @Test func aDeploymentThatHasLostItsRosterIsNotMadeAnew() throws {
        try withDirectory { directory in
            let made = try Deployment.create(
                directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            try FileManager.default.removeItem(atPath: files.rosterPath)
            do {
                _ = try Deployment.create(
                    directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
                Issue.record("Another was made over it.")
            } catch let error as CloudError {
                #expect(error.code == .configurationInvalid && error.details["file"] == files.rosterPath)
            }
            #expect(
                try files.secrets(of: .documents).masterKeys
                    == made.secrets.first { $0.service == "documents" }?.masterKeys)
            try files.write(made.roster)
            #expect(try files.roster() == made.roster)
        }
    }

    /// As where a folder is used by two that start at once: one has made it, whole, and the others hear of that.
    @Test func ofSeveralAtOnceOneMakesTheDeployment() throws {
        try withDirectory { directory in
            let outcomes = Mutex<[Result<Deployment, any Error>]>([])
            let looked = Mutex(0)
            let group = DispatchGroup()
            for _ in 0..<4 {
                group.enter()
                Thread.detachNewThread {
                    let outcome = Result {
                        try Deployment.create(
                            directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly()
                        ) { _ in
                            // Each has found none.
                            looked.withLock { $0 += 1 }
                            for _ in 0..<1000 where looked.withLock({ $0 < 4 }) { usleep(10_000) }
                        }
                    }
                    outcomes.withLock { $0.append(outcome) }
                    group.leave()
                }
            }
            group.wait()
            let all = outcomes.withLock { $0 }
            let made = all.compactMap { try? $0.get() }
            #expect(made.count == 1)
            for case .failure(let error) in all { #expect((error as? CloudError)?.code == .alreadyExists) }
            let files = DeploymentFiles(directory: directory)
            let roster = try files.roster()
            #expect(roster == made.first?.roster)
            for secrets in made.first?.secrets ?? [] {
                let kept = try files.secrets(of: ServiceName(secrets.service))
                #expect(kept.masterKeys == secrets.masterKeys)
            }
        }
    }

    /// What was never whole was never used.
    @Test func theMakingOfADeploymentThatWasCutOffIsBegunAnew() throws {
        try withDirectory { directory in
            let files = DeploymentFiles(directory: directory)
            try FileManager.default.createDirectory(atPath: files.operatorPath, withIntermediateDirectories: true)
            func make() throws -> Deployment {
                try Deployment.create(directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            }
            #expect(throws: CloudError.self) { try make() }
            #expect(try files.secrets(of: .records).service == "records")
            try FileManager.default.removeItem(atPath: files.operatorPath)
            let made = try make()
            #expect(
                try files.secrets(of: .records).masterKeys == made.secrets.first { $0.service == "records" }?.masterKeys
            )
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: directory).count == ServiceName.all.count + 2)
        }
    }

    @Test func eachServiceIsHandedItsOwnSecretAndTheRosterAlone() throws {
        try withDirectory { directory in
            let made = try Deployment.create(
                directory: directory + "/all", host: nil, advertisedHost: "cloud.example", basePort: 7410,
                transport: KeysOnly())
            let files = DeploymentFiles(directory: directory + "/all")
            #expect(try files.handOut(to: directory + "/handed") == ServiceName.programs)
            for service in ServiceName.all {
                let folder = "\(directory)/handed/\(service)"
                #expect(
                    try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
                        == ["\(service).secret.json", "roster.json"].sorted())
                let own = DeploymentFiles(directory: folder)
                #expect(try own.roster() == made.roster)
                #expect(try own.secrets(of: service).secretKey == files.secrets(of: service).secretKey)
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: "\(directory)/handed/web") == ["roster.json"])
            // Again: nothing to do. What changed goes to whom it concerns.
            #expect(try files.handOut(to: directory + "/handed").isEmpty)
            try files.addMasterKey(of: .documents)
            #expect(try files.handOut(to: directory + "/handed") == [.documents])
            try files.removeOldMasterKeys(of: .documents)
            #expect(try files.handOut(to: directory + "/handed") == [.documents])
            try files.advertise("other.example")
            #expect(try files.handOut(to: directory + "/handed") == ServiceName.programs)
            // A mode that a service would refuse is put right.
            let secret = "\(directory)/handed/records/records.secret.json"
            try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: secret)
            #expect(try files.handOut(to: directory + "/handed") == [.records])
        }
    }

    /// What a service was handed may be the last copy of the key that opens what it stores.
    @Test func aMasterKeyThatOnlyAServiceHasIsNotReplaced() throws {
        try withDirectory { directory in
            _ = try Deployment.create(
                directory: directory + "/all", host: nil, advertisedHost: "cloud.example", basePort: 7410,
                transport: KeysOnly())
            let files = DeploymentFiles(directory: directory + "/all")
            _ = try files.handOut(to: directory + "/handed")
            let handed = DeploymentFiles(directory: directory + "/handed/documents")
            let key = try handed.secrets(of: .documents).masterKeys
            // As by another deployment, or one that was rotated to its end without handing anything out.
            try files.addMasterKey(of: .documents)
            try files.removeOldMasterKeys(of: .documents)
            for mode in [0o600, 0o644] {
                try FileManager.default.setAttributes(
                    [.posixPermissions: mode], ofItemAtPath: handed.secretsPath(of: .documents))
                do {
                    _ = try files.handOut(to: directory + "/handed")
                    Issue.record("It was replaced.")
                } catch let error as CloudError { #expect(error.code == .constraintViolation) }
            }
            #expect(try handed.readSecrets(of: .documents).masterKeys == key)
        }
    }

    @Test(arguments: [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("192.0.2.1", "192.0.2.1")])
    func eventsAreBoundToTheMachineItselfUnlessToldOtherwise(_ host: String, _ events: String) throws {
        var roster = try Deployment(host: host, advertisedHost: "cloud.example", basePort: 7410, transport: KeysOnly())
            .roster
        #expect(try roster.entry(of: .documents).events == "tcp://\(events):7415")
        #expect(try roster.entry(of: .documents).requests == "tcp://\(host.contains(":") ? "[\(host)]" : host):7414")
        // The same after a move.
        try roster.move(to: "127.0.0.1", basePort: nil)
        try roster.move(to: host, basePort: nil)
        #expect(try roster.entry(of: .documents).events == "tcp://\(events):7415")
    }

    @Test func servicesOnHostsOfTheirOwnBindWhereTheyAreTold() throws {
        var roster = try Deployment(host: nil, advertisedHost: "cloud.example", basePort: 7410, transport: KeysOnly())
            .roster
        let before = try roster.entry(of: .documents)
        #expect(before.requests == "tcp://documents:7414")
        #expect(before.publicRequests == "tcp://cloud.example:7414")
        try roster.bind(.documents, at: "0.0.0.0")
        let entry = try roster.entry(of: .documents)
        #expect(entry.endpoints == ["tcp://0.0.0.0:7414", "tcp://0.0.0.0:7415", "tcp://0.0.0.0:7421"])
        #expect(entry.publicRequests == before.publicRequests)
        #expect(entry.publicBulk == before.publicBulk)
        // The others are reached as before.
        #expect(try roster.entry(of: .keyValue).events == "tcp://keyvalue:7413")

        // Without another name, devices are still told what they can reach.
        var plain = try Deployment(host: "192.168.1.10", basePort: 7410, transport: KeysOnly()).roster
        try plain.bind(.notifications, at: "::")
        let bound = try plain.entry(of: .notifications)
        #expect(bound.subscriptions == "tcp://[::]:7420")
        #expect(bound.publicSubscriptions == "tcp://192.168.1.10:7420")
        #expect(bound.publicRequests == "tcp://192.168.1.10:7418")
    }

    @Test func secretThatOthersMayReadIsRefused() throws {
        try withDirectory { directory in
            _ = try Deployment.create(directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            try FileManager.default.setAttributes(
                [.posixPermissions: 0o640], ofItemAtPath: files.secretsPath(of: .identity))
            #expect { try files.secrets(of: .identity) } throws: {
                ($0 as? CloudError)?.code == .configurationInvalid && "\($0)".contains("chmod 600")
            }
        }
    }

    @Test func whatOthersMayWriteIsNotBelieved() throws {
        try withDirectory { directory in
            _ = try Deployment.create(directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            func refused(_ mode: Int, _ path: String, _ body: () throws -> Void) throws {
                let before = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] ?? 0
                try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
                #expect { try body() } throws: { ($0 as? CloudError)?.code == .configurationInvalid }
                try FileManager.default.setAttributes([.posixPermissions: before], ofItemAtPath: path)
                try body()
            }
            try refused(0o666, files.rosterPath) { _ = try files.roster() }
            try refused(0o777, directory) { _ = try files.roster() }
            try refused(0o604, files.operatorPath) { _ = try files.operatorKeys() }
            try refused(0o750, directory) { try DeploymentFiles.requirePrivateFolder(directory) }
        }
    }

    @Test func keysInFilesAreReplacedInTwoSteps() throws {
        try withDirectory { directory in
            let made = try Deployment.create(
                directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            let time = Timestamp(milliseconds: 1_750_000_000_000)
            let later = time.advanced(by: KeyRotation.learningTime)
            #expect(throws: CloudError.self) { try files.switchKeys(at: later, forced: true) }
            try files.announceKeys(KeysOnly(), at: time)
            let announced = try files.roster()
            // Again, as after a crash: nothing new.
            try files.announceKeys(KeysOnly(), at: later)
            #expect(try files.roster() == announced)
            // Too early, and by a clock that was set back.
            for early in [later.advanced(by: .milliseconds(-1)), time.advanced(by: .seconds(-7200))] {
                let error = #expect(throws: CloudError.self) { try files.switchKeys(at: early, forced: false) }
                #expect(error?.code == .constraintViolation)
                #expect(error.flatMap(\.retryAfter).map { $0 <= KeyRotation.learningTime } == true)
            }
            #expect(try files.roster() == announced)
            let next = try files.secrets(of: .keyValue).nextSecretKey
            #expect(try files.secrets(of: .keyValue).secretKey == made.secrets[1].secretKey)
            try files.switchKeys(at: later, forced: false)
            #expect(try files.roster().nextKeysAnnounced == nil)
            #expect(try files.secrets(of: .keyValue).secretKey == next)
            #expect(try files.roster().services.map(\.publicKey) == announced.services.map(\.nextPublicKey))

            try files.addMasterKey(of: .records)
            #expect(try files.secrets(of: .records).masterKeys.count == 2)
            #expect(try files.secrets(of: .records).masterKeys.last == made.secrets[3].masterKeys.first)
            try files.removeOldMasterKeys(of: .records)
            #expect(try files.secrets(of: .records).masterKeys.count == 1)
            try files.replaceOperatorKey(KeysOnly())
            #expect(try files.operatorKeys().publicKey.z85 == files.roster().operatorKey)
            #expect(try files.operatorKeys() != made.operatorKeys)
        }
    }

    @Test func keysAreSwitchedOnceIdentityHasToldOfThemForAnHour() throws {
        try withDirectory { directory in
            var roster = try Deployment.create(
                directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly()
            ).roster
            let files = DeploymentFiles(directory: directory)
            #expect(try !files.awaitsSwitch())
            try files.announceKeys(KeysOnly(), at: Timestamp(milliseconds: 1_750_000_000_000))
            #expect(try files.awaitsSwitch())
            var identity = WireCheckHealthReply()
            identity.uptimeMilliseconds = 100 * 3_600_000
            // It runs with what was before.
            identity.announcedKeys = KeyRotation.announced(in: roster)
            roster = try files.roster()
            #expect(throws: CloudError.self) { try KeyRotation.requireTold(roster, by: identity) }
            identity.announcedKeys = KeyRotation.announced(in: roster)
            try KeyRotation.requireTold(roster, by: identity)
            identity.uptimeMilliseconds = 3_600_000
            try KeyRotation.requireTold(roster, by: identity)
            identity.uptimeMilliseconds -= 1
            let error = #expect(throws: CloudError.self) { try KeyRotation.requireTold(roster, by: identity) }
            #expect(error?.code == .constraintViolation && error?.retryAfter == .milliseconds(1))
            // One that was begun is brought to its end without a question.
            var secrets = try files.secrets(of: .identity)
            secrets.nextSecretKey = nil
            try files.write(secrets)
            #expect(try !files.awaitsSwitch())
        }
    }

    /// Whether the files fit each other: each service's secret key is that of the roster's public one.
    private func expectThatTheyFit(_ files: DeploymentFiles) throws {
        let roster = try files.roster()
        for entry in roster.services {
            let secrets = try files.secrets(of: ServiceName(entry.service))
            #expect(try KeysOnly.publicKey(of: secrets.key).z85 == entry.publicKey, "\(entry.service)")
            let next = try secrets.nextSecretKey.map { try KeysOnly.publicKey(of: #require(SecretKey(z85: $0))).z85 }
            #expect(next == entry.nextPublicKey, "\(entry.service)")
        }
        #expect(try files.operatorKeys().publicKey.z85 == roster.operatorKey)
    }

    /// Each step writes several files; it may end after any of them, and is then done once more.
    @Test func aStepThatEndedBetweenTwoFilesIsDoneAgain() throws {
        let time = Timestamp(milliseconds: 1_750_000_000_000)
        let later = time.advanced(by: KeyRotation.learningTime)
        let steps: [(DeploymentFiles) throws -> Void] = [
            { try $0.announceKeys(KeysOnly(), at: time) }, { try $0.switchKeys(at: later, forced: false) },
            { try $0.replaceOperatorKey(KeysOnly()) },
        ]
        for count in 0...ServiceName.all.count + 1 {
            try withDirectory { directory in
                _ = try Deployment.create(
                    directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
                let files = DeploymentFiles(directory: directory)
                for step in steps {
                    let announced = try files.roster().services.map(\.nextPublicKey)
                    let left = Mutex(count)
                    var ending = files
                    ending.fault = { path throws(CloudError) in
                        let isOver = left.withLock { left in
                            left -= 1
                            return left < 0
                        }
                        if isOver { throw CloudError(.storageFailure, "Here it ends.", details: ["file": path]) }
                    }
                    if (try? step(ending)) == nil { try step(files) }
                    try expectThatTheyFit(files)
                    // What devices have learned is what the services switch to.
                    if announced.allSatisfy({ $0 != nil }) {
                        #expect(try files.roster().services.map(\.publicKey) == announced.map { $0 ?? "" })
                    }
                }
            }
        }
    }

    /// Keys that some services have already are announced to nobody any more: no others take their place.
    @Test func whatASwitchHasBegunIsFinishedBeforeOtherKeysAreMade() throws {
        let time = Timestamp(milliseconds: 1_750_000_000_000)
        try withDirectory { directory in
            _ = try Deployment.create(directory: directory, host: "127.0.0.1", basePort: 7410, transport: KeysOnly())
            let files = DeploymentFiles(directory: directory)
            try files.announceKeys(KeysOnly(), at: time)
            let announced = try files.roster()
            var ending = files
            let left = Mutex(2)
            ending.fault = { path throws(CloudError) in
                let isOver = left.withLock { left in
                    left -= 1
                    return left < 0
                }
                if isOver { throw CloudError(.storageFailure, "Here it ends.", details: ["file": path]) }
            }
            #expect(throws: CloudError.self) { try ending.switchKeys(at: time, forced: true) }
            let error = #expect(throws: CloudError.self) { try files.announceKeys(KeysOnly(), at: time) }
            #expect(error?.code == .constraintViolation)
            #expect(try files.roster() == announced)
            try files.switchKeys(at: time, forced: true)
            try expectThatTheyFit(files)
            #expect(try files.roster().services.map(\.publicKey) == announced.services.map(\.nextPublicKey))
        }
    }

    @Test(arguments: ["127.0.0.1", "cloud.example.com", "::1"])
    func connectionStringReadsWhatItPrints(_ host: String) throws {
        let key = try KeysOnly().makeKeyPair().publicKey
        let connection = try ConnectionString(host: host, port: 7410, key: key)
        #expect(try ConnectionString(connection.description) == connection)
        #expect(try ConnectionString("  \(connection)\n") == connection)
        #expect(try ConnectionString(endpoint: connection.endpoint, key: key) == connection)
    }

    @Test(arguments: [
        "", "nephos://", "nephos://host", "nephos://host:1", "nephos://host:0/", "http://host:1/x",
        "nephos://host:99999/x", "nephos://host:1/%", "nephos://host:1?key=x", "nephos://:1/x",
    ])
    func whatIsNoConnectionStringIsRefused(_ text: String) {
        #expect(throws: CloudError.self) { try ConnectionString(text) }
    }
}
