internal import Foundation

/// Media types by the endings of names: those that people have.
package enum ContentTypes {
    /// - Returns: Nil: the ending is not known, or there is none.
    package static func type(of kind: DocumentEntry.Kind, named name: Data) -> String? {
        switch kind {
        case .folder: "inode/directory"
        case .link: "inode/symlink"
        case .package: "inode/package"
        case .file: type(ofName: name)
        }
    }

    private static func type(ofName name: Data) -> String? {
        guard let dot = name.lastIndex(of: UInt8(ascii: ".")), name.endIndex - dot <= endingBytesMax + 1 else {
            return nil
        }
        return types[String(decoding: name[(dot + 1)...], as: UTF8.self).lowercased()]
    }

    private static let endingBytesMax = 8

    private static let types: [String: String] = [
        "7z": "application/x-7z-compressed", "aac": "audio/aac", "avi": "video/x-msvideo", "avif": "image/avif",
        "bmp": "image/bmp", "bz2": "application/x-bzip2", "c": "text/x-c", "cpp": "text/x-c++", "css": "text/css",
        "csv": "text/csv", "doc": "application/msword",
        "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "epub": "application/epub+zip", "flac": "audio/flac", "gif": "image/gif", "go": "text/x-go",
        "gz": "application/gzip", "h": "text/x-c", "heic": "image/heic", "heif": "image/heif", "htm": "text/html",
        "html": "text/html", "ics": "text/calendar", "java": "text/x-java", "jpeg": "image/jpeg", "jpg": "image/jpeg",
        "js": "text/javascript", "json": "application/json", "m4a": "audio/mp4", "m4v": "video/x-m4v",
        "markdown": "text/markdown", "md": "text/markdown", "mjs": "text/javascript", "mkv": "video/x-matroska",
        "mov": "video/quicktime", "mp3": "audio/mpeg", "mp4": "video/mp4", "mpeg": "video/mpeg", "mpg": "video/mpeg",
        "odp": "application/vnd.oasis.opendocument.presentation",
        "ods": "application/vnd.oasis.opendocument.spreadsheet", "odt": "application/vnd.oasis.opendocument.text",
        "oga": "audio/ogg", "ogg": "audio/ogg", "ogv": "video/ogg", "opus": "audio/opus", "otf": "font/otf",
        "pdf": "application/pdf", "png": "image/png", "ppt": "application/vnd.ms-powerpoint",
        "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "py": "text/x-python", "rar": "application/vnd.rar", "rs": "text/x-rust", "rtf": "application/rtf",
        "sh": "application/x-sh", "sqlite": "application/vnd.sqlite3", "svg": "image/svg+xml",
        "swift": "text/x-swift", "tar": "application/x-tar", "tex": "application/x-tex", "tif": "image/tiff",
        "tiff": "image/tiff", "toml": "application/toml", "tsv": "text/tab-separated-values", "ttf": "font/ttf",
        "txt": "text/plain", "vcf": "text/vcard", "wav": "audio/wav", "webm": "video/webm", "webp": "image/webp",
        "woff": "font/woff", "woff2": "font/woff2", "xls": "application/vnd.ms-excel",
        "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xml": "application/xml",
        "xz": "application/x-xz", "yaml": "application/yaml", "yml": "application/yaml", "zip": "application/zip",
        "zst": "application/zstd",
    ]
}
