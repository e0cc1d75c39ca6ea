import Foundation
import NephosCore

@testable import NephosKit

// Files of this machine by their paths, as these tests make them.

extension DocumentSource {
    static func file(_ file: String, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        .file(URL(fileURLWithPath: file), at: path, allowsOpenDatabase: allowsOpenDatabase)
    }

    static func package(_ folder: String, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        .package(URL(fileURLWithPath: folder), at: path, allowsOpenDatabase: allowsOpenDatabase)
    }
}

extension UbiquityContainer {
    @discardableResult
    func put(
        file: String, at path: String, makesFolders: Bool = false, conditions: [DocumentCondition] = [],
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await localFiles.put(
            URL(fileURLWithPath: file), at: path, makesFolders: makesFolders, conditions: conditions,
            onProgress: onProgress)
    }

    @discardableResult
    func put(
        package folder: String, at path: String, makesFolders: Bool = false,
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await localFiles.putPackage(
            URL(fileURLWithPath: folder), at: path, makesFolders: makesFolders, onProgress: onProgress)
    }

    @discardableResult
    func get(
        _ path: some DocumentAddressing, to file: String, version: DocumentID? = nil, overwrites: Bool = false,
        replacesFolder: Bool = false, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> [UnkeptAttribute] {
        try await localFiles.get(
            path, to: URL(fileURLWithPath: file), version: version, overwrites: overwrites,
            replacesFolder: replacesFolder, timeout: timeout, onProgress: onProgress)
    }
}

extension DocumentRenditions {
    @discardableResult
    func set(
        file: String, named name: String, of path: some DocumentAddressing, madeFrom version: DocumentID? = nil
    ) async throws(CloudError) -> DocumentEntry {
        try await set(fileAt: URL(fileURLWithPath: file), named: name, of: path, madeFrom: version)
    }

    func get(
        named name: String, of path: some DocumentAddressing, to file: String, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) {
        try await get(
            named: name, of: path, to: URL(fileURLWithPath: file), timeout: timeout, onProgress: onProgress)
    }
}
