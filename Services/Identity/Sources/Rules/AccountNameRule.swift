internal import NephosCore

/// What a person may call an account: a name or a mail address.
enum AccountNameRule {
    /// The form in which names are stored and compared: lower case.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` unless it is 1 to 128 letters,
    ///   digits, `.`, `-` and `_`, with one `@` at most.
    static func canonical(_ name: String) throws(CloudError) -> String {
        let parts = name.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
        guard name.utf8.count <= NameRule.lengthMax, parts.allSatisfy({ NameRule.accepts(String($0)) }) else {
            throw CloudError(
                .invalidArguments,
                "An account name has letters, digits, dots, hyphens, underscores and at most one at sign.",
                details: ["argument": "account_name", "length_max": "\(NameRule.lengthMax)"])
        }
        return name.lowercased()
    }
}
