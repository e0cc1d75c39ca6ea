internal import NephosCore

/// Limits of free text that people read in lists.
enum TextRule {
    /// UTF-8 bytes.
    static let lengthMax = 256

    /// - Throws: ``CloudError`` `.invalidArguments` when the text is too long, or
    ///   has characters that are not to be seen: in a terminal they would be commands.
    static func check(_ text: String, argument: String) throws(CloudError) {
        guard text.utf8.count <= lengthMax else {
            throw CloudError(
                .invalidArguments, "A text is too long.",
                details: ["argument": argument, "length_max": "\(lengthMax)"])
        }
        guard !text.hasUnseenCharacters else {
            throw CloudError(
                .invalidArguments, "A text has control characters, or others that cannot be seen.",
                details: ["argument": argument])
        }
    }
    /// Checks what a device is to be called.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` also for one of which nothing is seen: nobody could tell in a list
    ///   which it is.
    static func checkDeviceName(_ name: String, argument: String) throws(CloudError) {
        try check(name, argument: argument)
        guard name.hasVisibleCharacters else {
            throw CloudError(.invalidArguments, "A device needs a name.", details: ["argument": argument])
        }
    }
}
