/// How a published content is answered.
enum LinkRule {
    /// What a browser may take a file for, by its name's end. Nothing that runs, or that shows what others wrote as a
    /// page: all else is bytes to be stored.
    static func type(of name: [UInt8]) -> (type: String, isShown: Bool) {
        let text = String(decoding: name, as: UTF8.self).lowercased()
        guard let dot = text.lastIndex(of: "."), let known = types[String(text[text.index(after: dot)...])] else {
            return ("application/octet-stream", false)
        }
        return known
    }

    private static let types: [String: (type: String, isShown: Bool)] = [
        "txt": ("text/plain; charset=utf-8", true), "md": ("text/plain; charset=utf-8", true),
        "csv": ("text/plain; charset=utf-8", true), "log": ("text/plain; charset=utf-8", true),
        "png": ("image/png", true), "jpg": ("image/jpeg", true), "jpeg": ("image/jpeg", true),
        "gif": ("image/gif", true), "webp": ("image/webp", true), "avif": ("image/avif", true),
        "mp3": ("audio/mpeg", true), "m4a": ("audio/mp4", true), "ogg": ("audio/ogg", true),
        "mp4": ("video/mp4", true), "webm": ("video/webm", true),
        "pdf": ("application/pdf", false), "zip": ("application/zip", false),
    ]

    /// `Content-Disposition`: what the file is called, in ASCII for old clients and as it is for all others.
    static func disposition(of name: [UInt8], isShown: Bool) -> String {
        let plain = String(
            decoding: name.map { byte in
                let isPlain =
                    (0x20...0x7e).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
                    && byte != UInt8(ascii: "%")
                return isPlain ? byte : UInt8(ascii: "_")
            }, as: UTF8.self)
        // What is no text is told as text that is like it: a name's bytes mean UTF-8 there.
        let text = String(decoding: name, as: UTF8.self)
        let encoded = percentEncoded([UInt8](text.utf8))
        return "\(isShown ? "inline" : "attachment"); filename=\"\(plain)\"; filename*=UTF-8''\(encoded)"
    }

    private static func percentEncoded(_ bytes: [UInt8]) -> String {
        let digits = [UInt8]("0123456789ABCDEF".utf8)
        return String(
            decoding: bytes.flatMap { byte -> [UInt8] in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "~"):
                    [byte]
                default: [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
                }
            }, as: UTF8.self)
    }
}
