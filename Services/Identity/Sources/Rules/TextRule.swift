internal import Core

/// Limits of free text that people read in lists.
enum TextRule {
    /// UTF-8 bytes.
    static let lengthMax = 256

    /// - Throws: ``CloudError`` `.invalidArguments` when the text is too long.
    static func check(_ text: String, argument: String) throws(CloudError) {
        guard text.utf8.count <= lengthMax else {
            throw CloudError(
                .invalidArguments, "A text is too long.",
                details: ["argument": argument, "length_max": "\(lengthMax)"])
        }
    }
}
