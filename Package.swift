// swift-tools-version: 6.2

import PackageDescription

// Imports run one way: Services -> ServiceKit -> Storage, Bus -> Wire -> Core.
// Services never import each other; only ZeroMQBus imports CZeroMQ. The
// explicit dependency check in ops/test holds these arrows.

let strict: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

// Product dependencies, named once.
let argumentParser = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let configuration = Target.Dependency.product(name: "Configuration", package: "swift-configuration")
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let cryptoExtras = Target.Dependency.product(name: "CryptoExtras", package: "swift-crypto")
let grdb = Target.Dependency.product(name: "GRDB", package: "GRDB.swift")
let sqlite = Target.Dependency.product(name: "GRDBSQLite", package: "GRDB.swift")
let histogram = Target.Dependency.product(name: "Histogram", package: "hdrhistogram-swift")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let protobuf = Target.Dependency.product(name: "SwiftProtobuf", package: "swift-protobuf")
let lifecycle = Target.Dependency.product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let unixSignals = Target.Dependency.product(name: "UnixSignals", package: "swift-service-lifecycle")

/// A library in `Shared/`.
func shared(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .target(name: name, dependencies: dependencies, path: "Shared/\(name)", swiftSettings: strict)
}

/// One of the five services: a library, and the thin executable over it.
func service(
    _ name: String, product: String, _ dependencies: [Target.Dependency] = [], entry: [Target.Dependency] = []
) -> [Target] {
    [
        .target(
            name: "\(name)Service",
            dependencies: ["ServiceKit", "Core"] + dependencies,
            path: "Services/\(name)/Sources",
            swiftSettings: strict
        ),
        .executableTarget(
            name: product,
            dependencies: [
                .target(name: "\(name)Service"), "ServiceEntry", "ServiceKit", "Core", argumentParser,
            ] + entry,
            path: "Services/\(name)/Entry",
            swiftSettings: strict
        ),
    ]
}

/// What a service needs that has state of its own.
let storing: [Target.Dependency] = ["Storage", "Bus", "Wire", configuration, protobuf]

/// A test target in `Tests/`.
func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies, path: "Tests/\(name)", swiftSettings: strict)
}

let package = Package(
    name: "nephos",
    products: [
        .library(name: "NephosKit", targets: ["NephosKit"]),
        .library(name: "NephosTestKit", targets: ["NephosTestKit"]),
        .executable(name: "nephos-identity", targets: ["nephos-identity"]),
        .executable(name: "nephos-keyvalue", targets: ["nephos-keyvalue"]),
        .executable(name: "nephos-documents", targets: ["nephos-documents"]),
        .executable(name: "nephos-records", targets: ["nephos-records"]),
        .executable(name: "nephos-notifications", targets: ["nephos-notifications"]),
        .executable(name: "nephos", targets: ["nephos"]),
        .executable(name: "nephos-load", targets: ["nephos-load"]),
    ],
    dependencies: [
        .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0", traits: []),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    ],
    targets: [
        .systemLibrary(name: "CJemalloc", path: "Shared/CJemalloc"),
        .systemLibrary(name: "CSQLiteShim", path: "Shared/CSQLiteShim"),
        .systemLibrary(name: "CSodium", path: "Shared/CSodium"),
        .systemLibrary(name: "CZeroMQ", path: "Shared/CZeroMQ"),
        shared("Core", [crypto]),
        shared("Files"),
        shared("Wire", ["Core", protobuf]),
        shared("Bus", ["Core", "Wire", protobuf]),
        shared("ZeroMQBus", ["Bus", "Core", "CZeroMQ", "CSodium", logging]),
        shared("Storage", ["Core", "CSQLiteShim", grdb, sqlite, logging]),
        shared("Content", ["Core", "Storage", crypto]),
        shared(
            "ServiceKit",
            [
                "Storage", "Bus", "Wire", "Core", "Files", "CJemalloc", "CSodium", protobuf, logging, configuration,
                crypto, lifecycle, unixSignals,
            ]),
        // What the programs of all services take and do.
        shared("ServiceEntry", ["ServiceKit", "ZeroMQBus", "Core", argumentParser]),
        shared("Bulk", ["ServiceKit", "Content", "Storage", "Bus", "Wire", "Core"]),
        shared("NephosKit", ["Bus", "Wire", "Core", "Files", "ZeroMQBus", crypto, grdb, protobuf, logging]),
        shared(
            "TestKit",
            [
                "ServiceKit", "NephosKit", "Storage", "Bus", "Wire", "Core", "IdentityService", "KeyValueService",
                "NotificationsService", "DocumentsService", "Bulk", "Content", logging, protobuf,
            ]),
        // What an app's tests import: a face of TestKit that shows nothing but NephosKit.
        shared("NephosTestKit", ["TestKit", "NephosKit", "RecordsService", "Content", "Bus", "Core", logging]),
    ]
        + service("Identity", product: "nephos-identity", storing + [crypto, cryptoExtras])
        + service("KeyValue", product: "nephos-keyvalue", storing)
        + service(
            "Documents", product: "nephos-documents", ["Bulk", "Content", "Storage", "Bus"], entry: ["ZeroMQBus"])
        + service("Records", product: "nephos-records")
        + service("Notifications", product: "nephos-notifications", storing)
        + [
            .executableTarget(
                name: "nephos",
                dependencies: ["NephosKit", "ServiceKit", "ZeroMQBus", "Bus", "Wire", "Core", argumentParser, logging],
                path: "Clients/CommandLine",
                swiftSettings: strict
            ),
            .executableTarget(
                name: "nephos-load",
                dependencies: [
                    "NephosKit", "ServiceKit", "ZeroMQBus", "Bus", "Wire", "Core", argumentParser, histogram,
                    protobuf, logging,
                ],
                path: "Clients/LoadTest",
                swiftSettings: strict
            ),
            // As an app is: on NephosKit alone.
            tests("AppTests", ["NephosKit"]),
            // As the tests of an app are: on the two products alone.
            tests("TestedAppTests", ["NephosKit", "NephosTestKit"]),
            tests("CoreTests", ["TestKit", "Core"]),
            tests("BusTests", ["Bus", "Core"]),
            tests(
                "NotificationsServiceTests",
                [
                    "NotificationsService", "ServiceKit", "TestKit", "NephosKit", "Bus", "Wire", "Core",
                ]),
            tests("ConvergenceTests", ["TestKit", "NephosKit", "Bus", "Wire", "Core"]),
            tests(
                "CloudTests",
                [
                    "NephosTestKit", "TestKit", "ServiceKit", "NephosKit", "Storage", "Bus", "Wire", "Core", protobuf,
                ]),
            tests("ZeroMQBusTests", ["ZeroMQBus", "Bus", "Core", "CZeroMQ"]),
            tests("StorageTests", ["Storage", "Core", sqlite]),
            tests(
                "BulkTests",
                [
                    "Bulk", "TestKit", "NephosKit", "ServiceKit", "Content", "Storage", "Bus", "Wire", "Core", logging,
                    protobuf,
                ]),
            tests("ContentTests", ["Content", "TestKit", "Storage", "Core"]),
            tests(
                "ServiceKitTests",
                ["TestKit", "ServiceKit", "Storage", "Bus", "Wire", "Core", crypto, protobuf, logging]),
            tests(
                "IdentityServiceTests",
                [
                    "IdentityService", "TestKit", "ServiceKit", "Storage", "Bus", "Wire", "Core", protobuf,
                ]),
            tests(
                "KeyValueServiceTests",
                [
                    "KeyValueService", "TestKit", "ServiceKit", "Storage", "Bus", "Wire", "Core", crypto, protobuf,
                ]),
            tests("CommandLineTests", ["ServiceKit", "TestKit", "Core", grdb]),
            // A service and its device model, as small as they can be.
            tests(
                "NoteTests",
                ["TestKit", "ServiceKit", "NephosKit", "Storage", "Bus", "Wire", "Core", grdb, protobuf]),
            tests(
                "NephosKitTests", ["TestKit", "NephosKit", "ZeroMQBus", "Bus", "Wire", "Core", grdb, logging, protobuf]),
        ],
    swiftLanguageModes: [.v6]
)
