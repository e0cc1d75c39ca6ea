import NephosCore
import NephosServiceKit
import NephosStorage

@testable import NephosKit

/// Finds what an object keeps in memory of one partition, whatever it is kept in: all that the object holds is looked
/// at, but for what closures have captured and mutexes guard.
///
/// So something new that is kept is found without being named here.
struct MemoryWalk {
    private let partition: Int
    /// What the accounts' ids are in which something lies there.
    private let accounts: Set<String>
    /// Properties that are of the partition whatever is in them.
    private let properties: Set<String>
    /// Where something was found: the type and its property.
    private(set) var places: Set<String> = []
    private var visited: Set<ObjectIdentifier> = []

    /// Not of a service's: the loop, the database, whoever the test itself is.
    private static let foreign = [
        "Simulated", "Disk", "SQLite", "Logger", "RequestClient", "Router", "Door", "TestCloud", "Warehouses",
    ]

    static func places(
        in host: ServiceHost, of partition: Int, _ accounts: [AccountID] = [], properties: Set<String> = []
    ) -> Set<String> {
        var walk = MemoryWalk(
            partition: partition, accounts: Set(accounts.map(\.rawValue)), properties: properties)
        walk.look(at: host, "", isElement: false)
        return walk.places
    }

    private init(partition: Int, accounts: Set<String>, properties: Set<String>) {
        self.partition = partition
        self.accounts = accounts
        self.properties = properties
    }

    /// - Parameters:
    ///   - place: Where it lies.
    ///   - isElement: Of a collection, which is what is named then.
    private mutating func look(at value: Any, _ place: String, isElement: Bool) {
        if let text = value as? String {
            if accounts.contains(where: { text == $0 || text.hasPrefix($0 + "/") }) { places.insert(place) }
            return
        }
        if value is [UInt8] || value is [UInt64] { return }
        let mirror = Mirror(reflecting: value)
        switch mirror.displayStyle {
        case .class:
            let type = "\(type(of: value))"
            guard !Self.foreign.contains(where: type.hasPrefix),
                visited.insert(ObjectIdentifier(value as AnyObject)).inserted
            else { return }
            var next: Mirror? = mirror
            while let present = next {
                lookAtProperties(of: present, type, place, isElement: false)
                next = present.superclassMirror
            }
        case .dictionary:
            for child in mirror.children {
                guard let (key, element) = child.value as? (AnyHashable, Any) else { continue }
                if let number = key.base as? Int, number == partition { places.insert(place) }
                look(at: key.base, place, isElement: true)
                look(at: element, place, isElement: true)
            }
        case .collection, .set:
            // One for each partition.
            let isByPartition = mirror.children.count == partitionCount
            for (index, child) in mirror.children.enumerated() {
                if isByPartition, index == partition, Self.isThere(child.value) { places.insert(place) }
                look(at: child.value, place, isElement: true)
            }
        case .optional, .tuple:
            for child in mirror.children { look(at: child.value, place, isElement: true) }
        default:
            lookAtProperties(of: mirror, "\(type(of: value))", place, isElement: isElement)
        }
    }

    private mutating func lookAtProperties(of mirror: Mirror, _ type: String, _ place: String, isElement: Bool) {
        for child in mirror.children {
            let label = child.label ?? ""
            // An item's scope, by the number that says its partition.
            if label == "scope", let number = child.value as? Int64,
                Int((number - 1) % Int64(partitionCount)) == partition
            {
                places.insert(place)
            }
            if properties.contains(label), Self.isThere(child.value) { places.insert("\(type).\(label)") }
            // An id has nothing but its text.
            look(at: child.value, isElement || label == "rawValue" ? place : "\(type).\(label)", isElement: isElement)
        }
    }

    /// Whether it is an optional with something in it.
    private static func isThere(_ value: Any) -> Bool {
        let mirror = Mirror(reflecting: value)
        return mirror.displayStyle == .optional && mirror.children.count == 1
    }
}
