public import NephosCore

/// A place where something can be made to go wrong: each call of services and devices that reads, writes, sends or
/// receives. This is the list of them.
public struct FaultPoint: Hashable, Sendable {
    /// What can go wrong at a place.
    public enum Kind: String, CaseIterable, Sendable {
        /// It fails, and nothing of it is done: the disk is full or cannot be read, the message is lost without a sign.
        case fails
        /// It takes time, and whoever does it does nothing else meanwhile.
        case slow
        /// It is done, or half of it, and whoever does it does not come to know: the service dies before it answers,
        /// the connection breaks, half a file is left.
        case halfDone
    }

    /// Such as `keyvalue.commit`.
    public var name: String
    /// What it can be made to do.
    public var kinds: Set<Kind>

    /// Whether it is a device's.
    public var isOfDevice: Bool { name.hasPrefix("device.") }

    /// What a service does. It publishes to the services that follow it, of which notifications has none, and sends to
    /// devices.
    private static let ofServices: [(name: String, kinds: Set<Kind>)] = [
        ("read", [.fails, .slow]), ("commit", [.fails, .slow, .halfDone]), ("send", [.fails, .slow, .halfDone]),
        ("receive", [.fails, .slow, .halfDone]), ("publish", [.fails, .slow, .halfDone]),
    ]

    /// What documents and records do besides, with the segments that hold contents.
    private static let ofContents: [(name: String, kinds: Set<Kind>)] = [
        ("content.read", [.fails, .slow]), ("content.write", [.fails, .slow, .halfDone]),
    ]

    /// What a device does: its database, its secrets' file, its lines, and the steps between two things that are saved
    /// when the account changes, a file of defaults is mirrored, or contents are written or fetched.
    private static let ofDevices: [(name: String, kinds: Set<Kind>)] =
        [
            ("open", [.fails, .slow]), ("read", [.fails, .slow]), ("save", [.fails, .slow]),
            ("secrets", [.fails, .slow, .halfDone]),
            ("send", [.fails, .slow, .halfDone]), ("receive", [.fails, .slow, .halfDone]),
        ]
        + [
            "sign-in.commit", "sign-out.commit", "switch.secrets", "switch.session", "switch.clear", "mirror.write",
            "mirror.rename", "mirror.note", "writer.flush", "download.keep", "content.read",
        ].map { ($0, [.fails]) }

    /// Every place there is.
    public static let all: [FaultPoint] = {
        var points: [FaultPoint] = []
        for service in [ServiceName.identity, .keyValue, .notifications, .documents, .records] {
            for place in ofServices where service != .notifications || place.name != "publish" {
                points.append(FaultPoint(name: "\(service).\(place.name)", kinds: place.kinds))
            }
        }
        for service in [ServiceName.documents, .records] {
            for place in ofContents {
                points.append(FaultPoint(name: "\(service).\(place.name)", kinds: place.kinds))
            }
        }
        for place in ofDevices { points.append(FaultPoint(name: "device.\(place.name)", kinds: place.kinds)) }
        return points
    }()

    private static let byName = Dictionary(all.map { ($0.name, $0) }) { $1 }

    /// - Throws: ``CloudError`` `.invalidArguments` for a name that is not in the list.
    public init(named name: String) throws(CloudError) {
        guard let point = Self.byName[name] else {
            throw CloudError(
                .invalidArguments, "There is no place of this name where something could go wrong.",
                details: ["name": name, "names": Self.all.map(\.name).joined(separator: ", ")])
        }
        self = point
    }

    private init(name: String, kinds: Set<Kind>) {
        self.name = name
        self.kinds = kinds
    }
}
