import Foundation
import NephosAgent
import NephosCore
import NephosFiles
import NephosKit
import NephosTestKit
import Synchronization
import Testing

/// Devices of one account in a cloud of a test, each with a folder on disk that an agent keeps in sync.
final class Household {
    final class Device {
        let session: Session
        let container: UbiquityContainer
        let store: AgentStore
        let path: String
        private(set) var folder: AgentFolder
        private let options: AgentOptions
        /// Called with each activity, in the middle of a pass.
        final class Hook: Sendable {
            let body = Mutex<(@Sendable (AgentActivity) -> Void)?>(nil)
        }
        let hook = Hook()
        private var running: FolderSync?
        var sync: FolderSync { get throws { try #require(running) } }

        init(_ session: Session, path: String, _ options: AgentOptions) async throws {
            self.session = session
            self.path = path
            container = try await session.container()
            try await container.ready()
            store = try AgentStore(home: session.home.path)
            let mark = try RootFolder.adopt(path)
            let account = try #require(try session.account).accountID
            folder = try store.add(
                path: path, app: container.app, container: container.id, account: account, mark: mark)
            var options = options
            // The two events of one rename may come apart.
            if options.deleteDelay > .milliseconds(20) { options.deleteDelay = .milliseconds(20) }
            let name = (path as NSString).lastPathComponent
            let isPrinted = ProcessInfo.processInfo.environment["NEPHOS_AGENT_LOG"] != nil
            options.onActivity = { [hook] activity in
                if isPrinted { print("[\(name)] \(activity.action) \(activity.path) \(activity.detail ?? "")") }
                hook.body.withLock { $0 }?(activity)
            }
            self.options = options
            running = try FolderSync(folder, container.tree(), store, options)
        }

        /// Ends the agent between two passes, and starts another.
        func restart() async throws {
            // The folder's lock goes with the old one.
            running = nil
            var left = 200
            while true {
                do {
                    running = try FolderSync(folder, container.tree(), store, options)
                    return
                } catch {
                    left -= 1
                    if left == 0 { throw error }
                    try await Task.sleep(for: .milliseconds(5))
                }
            }
        }

        /// Removes the folder from the agent, and adds it again.
        func addAgain() async throws {
            try store.remove(folder)
            folder = try store.add(
                path: path, app: folder.app, container: folder.container, account: folder.account, mark: folder.mark)
            try await restart()
        }

        // MARK: Files

        func write(_ name: String, _ text: String) throws {
            let file = path + "/" + name
            try FileManager.default.createDirectory(
                atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
            try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        }

        /// As editors save: a new file is written and renamed over the old.
        func replace(_ name: String, _ text: String) throws {
            try write(name + ".tmp", text)
            #expect(rename(path + "/" + name + ".tmp", path + "/" + name) == 0)
        }

        func read(_ name: String) -> String? {
            (try? Data(contentsOf: URL(fileURLWithPath: path + "/" + name))).map { String(decoding: $0, as: UTF8.self) }
        }

        func move(_ old: String, _ new: String) throws {
            try FileManager.default.moveItem(atPath: path + "/" + old, toPath: path + "/" + new)
        }

        func remove(_ name: String) throws { try FileManager.default.removeItem(atPath: path + "/" + name) }

        func makeFolder(_ name: String) throws {
            try FileManager.default.createDirectory(atPath: path + "/" + name, withIntermediateDirectories: true)
        }

        /// Every file and folder, with contents; the agent's own folder is left out.
        func tree() throws -> [String: String] {
            var found: [String: String] = [:]
            var left = [""]
            while let folder = left.popLast() {
                for name in try FileManager.default.contentsOfDirectory(atPath: path + "/" + folder)
                where name != ".nephos" {
                    let inner = folder.isEmpty ? name : folder + "/" + name
                    var status = stat()
                    guard lstat(path + "/" + inner, &status) == 0 else { continue }
                    switch status.st_mode & S_IFMT {
                    case S_IFDIR:
                        found[inner] = "folder"
                        left.append(inner)
                    case S_IFLNK:
                        found[inner] =
                            "link to " + (try FileManager.default.destinationOfSymbolicLink(atPath: path + "/" + inner))
                    default:
                        let mark = status.st_mode & S_IXUSR == 0 ? "" : "* "
                        found[inner] = mark + (read(inner) ?? "unreadable")
                    }
                }
            }
            return found
        }

        func id(of name: String) async throws -> DocumentID {
            try #require(try await container.item(at: name)).id
        }
    }

    let cloud: TestCloud
    private(set) var devices: [Device] = []
    private let root: String
    private let options: AgentOptions

    init(_ count: Int = 2, seed: UInt64 = 1, options: AgentOptions = AgentOptions()) async throws {
        self.options = options
        root = NSTemporaryDirectory() + "/nephos-folders-" + UUID().uuidString
        cloud = try await TestCloud(seed: seed)
        for number in 0..<count { try await addDevice("device\(number)") }
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    @discardableResult
    func addDevice(
        _ name: String, at folder: String? = nil, before: (String) throws -> Void = { _ in }
    ) async throws -> Device {
        let path = folder ?? root + "/" + name
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try before(path)
        let device = try await Device(cloud.openSession(account: "anna", device: name), path: path, options)
        devices.append(device)
        return device
    }

    subscript(number: Int) -> Device { devices[number] }

    /// Runs passes until no agent has anything left to do.
    func settle(within limit: Duration = .seconds(120)) async throws {
        var quiet = 0
        let end = ContinuousClock.now + limit
        while ContinuousClock.now < end {
            var isIdle = true
            for device in devices {
                try await device.sync.pass()
                isIdle = try await device.sync.isIdle && isIdle
            }
            try await cloud.settle()
            quiet = isIdle ? quiet + 1 : 0
            if quiet == 3 { return }
            if !isIdle { try await Task.sleep(for: .milliseconds(5)) }
        }
        for device in devices {
            let report = try device.store.report(of: device.folder)
            Issue.record("Not idle: \(device.path): \(String(describing: report))")
        }
        try await describe()
    }

    /// Says what each device has, for a failure.
    func describe() async throws {
        for device in devices {
            print(device.path, try device.tree().mapValues { $0.prefix(200) })
            print("  container:", try await device.container.items(in: "Documents").map { "\($0.path) \($0.id)" })
            print("  blocked:", try device.store.blocked(in: device.folder).map { "\($0.text): \($0.reason)" })
            print("  report:", String(describing: try device.store.report(of: device.folder)))
            print("  parked:", try FileManager.default.contentsOfDirectory(atPath: device.path + "/.nephos/parked"))
        }
    }

    /// Settles, and expects all folders to be equal.
    @discardableResult
    func expectEqual(_ location: SourceLocation = #_sourceLocation) async throws -> [String: String] {
        try await settle()
        let first = try devices[0].tree()
        for device in devices.dropFirst() {
            #expect(try device.tree() == first, sourceLocation: location)
        }
        if try devices.contains(where: { try $0.tree() != first }) { try await describe() }
        return first
    }
}
