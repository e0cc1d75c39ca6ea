// swift-tools-version: 6.2

import PackageDescription

// Imports run one way: services -> NephosServiceKit -> NephosStorage, NephosBus
// -> NephosWire -> NephosCore. Services never import each other; only
// NephosZeroMQ imports CNephosZeroMQ. The explicit dependency check in ops/test holds
// these arrows. Every library has a name of Nephos, because a module's name is
// one for the whole program of an app that links it.

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
let deque = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let heap = Target.Dependency.product(name: "HeapModule", package: "swift-collections")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let nio = ["NIOCore", "NIOPosix", "NIOHTTP1"].map { Target.Dependency.product(name: $0, package: "swift-nio") }
let nioSSL = Target.Dependency.product(name: "NIOSSL", package: "swift-nio-ssl")
let protobuf = Target.Dependency.product(name: "SwiftProtobuf", package: "swift-protobuf")
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
            name: "Nephos\(name)",
            dependencies: ["NephosServiceKit", "NephosCore"] + dependencies,
            path: "Services/\(name)/Sources",
            swiftSettings: strict
        ),
        .executableTarget(
            name: product,
            dependencies: [
                .target(name: "Nephos\(name)"), "NephosServiceEntry", "NephosServiceKit", "NephosCore", argumentParser,
            ] + entry,
            path: "Services/\(name)/Entry",
            swiftSettings: strict
        ),
    ]
}

/// What a service needs that has state of its own.
let storing: [Target.Dependency] = ["NephosStorage", "NephosBus", "NephosWire", protobuf]

/// A program in `examples/`, as an app is: on NephosKit alone. It is no product, so nothing installs it.
func example(_ name: String, _ folder: String) -> Target {
    .executableTarget(
        name: name, dependencies: ["NephosKit"], path: "examples/\(folder)", exclude: ["README.md"],
        swiftSettings: strict)
}

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
        .executable(name: "nephos-web", targets: ["nephos-web"]),
        .executable(name: "nephos-load", targets: ["nephos-load"]),
    ],
    dependencies: [
        .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0", traits: []),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    ],
    targets: [
        .systemLibrary(name: "CNephosFiles", path: "Shared/CNephosFiles"),
        .target(
            name: "CNephosJemalloc", path: "Shared/CNephosJemalloc", publicHeadersPath: ".",
            linkerSettings: [.linkedLibrary("jemalloc")]),
        .systemLibrary(name: "CNephosSQLiteShim", path: "Shared/CNephosSQLiteShim"),
        .systemLibrary(name: "CNephosSodium", path: "Shared/CNephosSodium"),
        .systemLibrary(name: "CNephosZeroMQ", path: "Shared/CNephosZeroMQ"),
        .systemLibrary(name: "CNephosZstd", path: "Shared/CNephosZstd"),
        shared("NephosCore", [crypto]),
        shared("NephosFiles", ["CNephosFiles"]),
        shared("NephosChunks", ["NephosCore", "CNephosZstd"]),
        shared("NephosPredicates", ["NephosCore"]),
        shared("NephosHTTP", ["NephosCore", nioSSL] + nio),
        shared("NephosWire", ["NephosCore", protobuf]),
        // Values of keys as property lists, as JSON and as Swift types.
        shared("NephosPropertyLists", ["NephosCore", "NephosWire"]),
        // The rule by which a device and the server agree on an item. It uses neither a database nor a clock.
        shared("NephosSync", ["NephosCore"]),
        // What may be done to a record, and how a predicate sees one: the same on devices and in the service.
        shared("NephosRecordRules", ["NephosCore", "NephosPredicates", "NephosWire", protobuf]),
        shared("NephosBus", ["NephosCore", "NephosWire", heap, protobuf]),
        shared("NephosZeroMQ", ["NephosBus", "NephosCore", "CNephosZeroMQ", "CNephosSodium", heap, logging]),
        shared("NephosStorage", ["NephosCore", "NephosFiles", "CNephosSQLiteShim", grdb, sqlite, logging]),
        shared("NephosContent", ["NephosCore", "NephosFiles", "NephosStorage", crypto]),
        shared(
            "NephosServiceKit",
            [
                "NephosStorage", "NephosBus", "NephosWire", "NephosCore", "NephosFiles", "CNephosJemalloc",
                "CNephosSodium",
                protobuf, logging, configuration,
                crypto, unixSignals,
            ]),
        // What an operator gets everything back from.
        shared(
            "NephosBackup",
            [
                "NephosServiceKit", "NephosContent", "NephosStorage", "NephosFiles", "NephosCore", "CNephosSodium",
                crypto,
            ]),
        // What the programs of all services take and do.
        shared(
            "NephosServiceEntry",
            ["NephosServiceKit", "NephosZeroMQ", "NephosHTTP", "NephosCore", argumentParser]),
        shared(
            "NephosBulk",
            [
                "NephosServiceKit", "NephosChunks", "NephosContent", "NephosStorage", "NephosBus", "NephosWire",
                "NephosCore",
            ]),
        shared(
            "NephosKit",
            [
                "NephosBus", "NephosSync", "NephosPropertyLists", "NephosWire", "NephosChunks", "NephosPredicates",
                "NephosRecordRules",
                "NephosCore", "NephosFiles", "NephosZeroMQ", crypto, deque, grdb, protobuf, logging,
            ]),
        // Keeps folders on disk equal to containers.
        shared("NephosAgent", ["NephosKit", "NephosFiles", "CNephosFiles", "NephosCore", grdb]),
        shared(
            "NephosSimulation",
            [
                "NephosServiceKit", "NephosKit", "NephosStorage", "NephosBus", "NephosWire", "NephosCore",
                "NephosIdentity", "NephosKeyValue",
                "NephosNotifications", "NephosDocuments", "NephosBulk", "NephosContent", "NephosChunks",
                logging, protobuf,
            ]),
        // What an app's tests import: a face of TestKit that shows nothing but NephosKit.
        shared(
            "NephosTestKit",
            ["NephosSimulation", "NephosKit", "NephosRecords", "NephosContent", "NephosBus", "NephosCore", logging]),
    ]
        + service("Identity", product: "nephos-identity", storing + [crypto, cryptoExtras])
        + service("KeyValue", product: "nephos-keyvalue", storing)
        + service(
            "Documents", product: "nephos-documents",
            [
                "NephosBulk", "NephosContent", "NephosPredicates", "NephosStorage", "NephosBus", "NephosWire", crypto,
                protobuf,
            ],
            entry: ["NephosZeroMQ"])
        + service(
            "Records", product: "nephos-records",
            storing + ["NephosBulk", "NephosContent", "NephosPredicates", "NephosRecordRules"], entry: ["NephosZeroMQ"])
        + service("Notifications", product: "nephos-notifications", storing)
        + [
            .executableTarget(
                name: "nephos",
                dependencies: [
                    "NephosAgent", "NephosBackup", "NephosKit", "NephosPropertyLists", "NephosServiceKit",
                    "NephosWeb", "NephosZeroMQ",
                    "NephosBus", "NephosWire",
                    "NephosCore",
                    argumentParser, logging,
                ],
                path: "Clients/CommandLine",
                swiftSettings: strict
            ),
            // A socket that plays thousands of devices.
            .target(
                name: "NephosLoadBus", dependencies: ["NephosZeroMQ", "NephosBus", "NephosCore", "CNephosZeroMQ"],
                path: "Clients/LoadBus", swiftSettings: strict),
            .executableTarget(
                name: "nephos-load",
                dependencies: [
                    "NephosLoadBus", "NephosKit", "NephosServiceKit", "NephosZeroMQ", "NephosBus", "NephosWire",
                    "NephosCore",
                    argumentParser, histogram,
                    protobuf, logging,
                ],
                path: "Clients/LoadTest",
                swiftSettings: strict
            ),
            // The door for browsers and WebDAV programs. It is a client of the services, as a device is. The console's
            // pages are a part of the program.
            .target(
                name: "NephosWeb",
                dependencies: [
                    "NephosKit", "NephosHTTP", "NephosFiles", "NephosPredicates", "NephosPropertyLists", "NephosWire",
                    "NephosBus", "NephosCore",
                    crypto, grdb, logging,
                ],
                path: "Clients/Web", exclude: ["Entry"], sources: ["Sources"],
                resources: [.embedInCode("Pages")], swiftSettings: strict),
            .executableTarget(
                name: "nephos-web",
                dependencies: [
                    "NephosWeb", "NephosServiceEntry", "NephosServiceKit", "NephosZeroMQ", "NephosBus", "NephosHTTP",
                    "NephosKit", "NephosCore", argumentParser, logging,
                ],
                path: "Clients/Web/Entry", swiftSettings: strict),
            example("notes", "Notes"),
            example("photo-drop", "PhotoDrop"),
            example("tutorial", "Tutorial"),
            // As an app is: on NephosKit alone.
            tests("AppTests", ["NephosKit"]),
            // As the tests of an app are: on the two products alone.
            tests("TestedAppTests", ["NephosKit", "NephosTestKit"]),
            tests("CoreTests", ["NephosSimulation", "NephosCore"]),
            tests("NephosSyncTests", ["NephosSync", "NephosCore"]),
            tests("PredicatesTests", ["NephosPredicates", "NephosCore"]),
            tests("BusTests", ["NephosBus", "NephosCore"]),
            tests(
                "NotificationsServiceTests",
                [
                    "NephosNotifications", "NephosServiceKit", "NephosSimulation", "NephosKit", "NephosBus",
                    "NephosWire", "NephosCore",
                ]),
            tests(
                "ConvergenceTests",
                [
                    "NephosSimulation", "NephosKit", "NephosBulk", "NephosChunks", "NephosContent", "NephosStorage",
                    "NephosBus", "NephosWire", "NephosCore", protobuf,
                ]),
            tests(
                "CloudTests",
                [
                    "NephosNotifications", "NephosRecords", "NephosTestKit", "NephosSimulation", "NephosServiceKit",
                    "NephosKit", "NephosContent", "NephosStorage", "NephosBus", "NephosWire", "NephosCore", protobuf,
                ]),
            tests("ZeroMQBusTests", ["NephosLoadBus", "NephosZeroMQ", "NephosBus", "NephosCore", "CNephosZeroMQ"]),
            tests("StorageTests", ["NephosStorage", "NephosFiles", "NephosCore", sqlite]),
            tests(
                "BulkTests",
                [
                    "NephosBulk", "NephosSimulation", "NephosKit", "NephosServiceKit", "NephosContent", "NephosChunks",
                    "NephosStorage", "NephosBus", "NephosWire", "NephosCore", protobuf,
                ]),
            tests("HTTPTests", ["NephosHTTP", "NephosCore"]),
            // WebDAV over real HTTP, to a cloud in the test's process.
            tests(
                "WebTests",
                ["NephosWeb", "NephosTestKit", "NephosSimulation", "NephosKit", "NephosHTTP", "NephosCore", logging]),
            tests("ChunksTests", ["NephosChunks", "NephosCore", "CNephosZstd"]),
            tests("ContentTests", ["NephosContent", "NephosSimulation", "NephosStorage", "NephosCore"]),
            tests(
                "ServiceKitTests",
                [
                    "NephosSimulation", "NephosServiceKit", "NephosStorage", "NephosBus", "NephosWire", "NephosCore",
                    crypto, protobuf, logging,
                ]),
            tests(
                "IdentityServiceTests",
                [
                    "NephosIdentity", "NephosSimulation", "NephosServiceKit", "NephosStorage", "NephosBus",
                    "NephosWire", "NephosCore", protobuf,
                ]),
            tests(
                "KeyValueServiceTests",
                [
                    "NephosKeyValue", "NephosSimulation", "NephosServiceKit", "NephosStorage", "NephosBus",
                    "NephosWire", "NephosCore", crypto, protobuf,
                ]),
            tests(
                "DocumentsServiceTests",
                [
                    "NephosDocuments", "NephosSimulation", "NephosServiceKit", "NephosKit", "NephosBulk",
                    "NephosContent", "NephosChunks",
                    "NephosStorage", "NephosBus", "NephosWire", "NephosCore", protobuf,
                ]),
            tests(
                "BackupTests",
                [
                    "NephosBackup", "NephosServiceKit", "NephosContent", "NephosStorage", "NephosFiles",
                    "NephosZeroMQ", "NephosBus", "NephosCore", logging,
                ]),
            tests(
                "RecordsServiceTests",
                [
                    "NephosBackup", "NephosRecords", "NephosRecordRules", "NephosPredicates", "NephosSimulation",
                    "NephosServiceKit",
                    "NephosContent", "NephosBulk", "NephosChunks", "NephosKit", "NephosStorage", "NephosBus",
                    "NephosWire",
                    "NephosCore", protobuf,
                ]),
            // A device's records, against the service itself.
            tests(
                "RecordsKitTests",
                [
                    "NephosRecords", "NephosRecordRules", "NephosPredicates", "NephosSimulation", "NephosServiceKit",
                    "NephosContent", "NephosKit", "NephosSync", "NephosStorage", "NephosBus", "NephosWire",
                    "NephosCore",
                    grdb, protobuf,
                ]),
            tests(
                "CommandLineTests",
                [
                    "nephos", "notes", "photo-drop", "tutorial", "NephosServiceKit", "NephosSimulation", "NephosCore",
                    argumentParser, grdb,
                ]),
            // A service and its device model, as small as they can be.
            tests(
                "NoteTests",
                [
                    "NephosSimulation", "NephosServiceKit", "NephosKit", "NephosStorage", "NephosBus", "NephosWire",
                    "NephosCore", grdb, protobuf,
                ]),
            // Folders of several devices, with real files.
            tests(
                "NephosAgentTests",
                [
                    "NephosAgent", "NephosTestKit", "NephosSimulation", "NephosKit", "NephosFiles", "NephosCore", grdb,
                ]),
            // A device's containers, against a service that is as small as it can be.
            tests(
                "DocumentsKitTests",
                [
                    "NephosSimulation", "NephosServiceKit", "NephosKit", "NephosBulk", "NephosChunks", "NephosContent",
                    "NephosFiles", "CNephosFiles", "NephosPredicates", "NephosSync",
                    "NephosStorage", "NephosBus", "NephosWire", "NephosCore", grdb, protobuf,
                ]),
            tests(
                "NephosKitTests",
                [
                    "NephosSimulation", "NephosKit", "NephosSync", "NephosPropertyLists", "NephosZeroMQ", "NephosBus",
                    "NephosWire", "NephosCore", grdb,
                    logging, protobuf,
                ]),
        ],
    swiftLanguageModes: [.v6]
)

// A part of the tests builds in a part of the time: NEPHOS_TESTS=RecordsServiceTests,RecordsKitTests swift test
if let wanted = Context.environment["NEPHOS_TESTS"]?.split(separator: ",").map(String.init) {
    package.targets.removeAll { $0.type == .test && !wanted.contains($0.name) }
}
