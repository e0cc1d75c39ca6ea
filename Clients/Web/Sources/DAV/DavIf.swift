internal import NephosCore

/// The `If` header (RFC 4918, section 10.4): lists of conditions, any one of which has to hold as a whole.
struct DavIf: Equatable {
    enum State: Equatable {
        case lock(String)
        case tag(String)
    }

    struct Condition: Equatable {
        var isNegated: Bool
        var state: State
    }

    struct List: Equatable {
        /// The address that it is about; nil: the request's.
        var resource: String?
        var conditions: [Condition]
    }

    var lists: [List]

    /// All lock tokens that are named.
    var tokens: Set<String> {
        Set(
            lists.flatMap(\.conditions).compactMap { condition in
                if case .lock(let token) = condition.state { token } else { nil }
            })
    }

    /// - Returns: Nil: it is malformed.
    init?(_ header: String) {
        var rest = Substring(header)
        var lists: [List] = []
        var resource: String?
        func skip() { rest = rest.drop { $0 == " " || $0 == "\t" } }
        func take(_ first: Character, _ last: Character) -> String? {
            guard rest.first == first, let end = rest.firstIndex(of: last) else { return nil }
            defer { rest = rest[rest.index(after: end)...] }
            return String(rest[rest.index(after: rest.startIndex)..<end])
        }
        skip()
        while !rest.isEmpty {
            if rest.first == "<" {
                guard let text = take("<", ">") else { return nil }
                resource = text
                skip()
            }
            guard rest.first == "(" else { return nil }
            rest = rest.dropFirst()
            var conditions: [Condition] = []
            skip()
            while rest.first != ")" {
                var isNegated = false
                if rest.lowercased().hasPrefix("not") {
                    isNegated = true
                    rest = rest.dropFirst(3)
                    skip()
                }
                if let token = take("<", ">") {
                    conditions.append(Condition(isNegated: isNegated, state: .lock(token)))
                } else if let tag = take("[", "]") {
                    conditions.append(Condition(isNegated: isNegated, state: .tag(tag)))
                } else {
                    return nil
                }
                skip()
            }
            rest = rest.dropFirst()
            guard !conditions.isEmpty else { return nil }
            lists.append(List(resource: resource, conditions: conditions))
            skip()
        }
        guard !lists.isEmpty else { return nil }
        self.lists = lists
    }
}
