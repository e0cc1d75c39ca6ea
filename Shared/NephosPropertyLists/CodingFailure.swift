package import NephosCore

/// Where in a value something is: a name, or the place in an array.
package struct PlainKey: CodingKey {
    package let stringValue: String
    package let intValue: Int?

    package init(stringValue: String) {
        self.stringValue = stringValue
        intValue = nil
    }

    package init(intValue: Int) {
        stringValue = "\(intValue)"
        self.intValue = intValue
    }

    package init(index: Int) { self.init(intValue: index) }

    /// Under which a superclass is encoded that has no key of its own.
    package static var ofSuper: PlainKey { PlainKey(stringValue: "super") }
}

/// Why a Swift value could not be stored, or read. Names the path, and nothing that is stored there.
package enum CodingFailure {
    /// - Parameter reason: A constant sentence.
    package static func error(
        _ reason: String, _ path: [any CodingKey],
        message: String = "The value cannot be kept in a store. Nothing was stored."
    ) -> CloudError {
        var details = ["reason": reason]
        if !path.isEmpty { details["path"] = text(of: path) }
        return CloudError(.invalidArguments, message, details: details)
    }

    package static func tooDeep(_ path: [any CodingKey]) -> CloudError {
        var error = error("It nests too deeply.", path)
        error.details["depth_max"] = "\(PropertyValue.depthMax)"
        return error
    }

    /// The type's own code has refused it.
    package static func refused(_ path: [any CodingKey], by cause: (any Error)? = nil) -> CloudError {
        var error = error("The type does not encode this value.", path)
        error.details["type"] = cause.map { "\(type(of: $0))" }
        return error
    }

    /// What is stored is no value of the type that was asked for.
    package static func mismatch(_ cause: any Error) -> CloudError {
        let message = "What is stored is not of the type that was asked for. Ask for another, or store it anew."
        switch cause {
        case let error as CloudError: return error
        case DecodingError.typeMismatch(_, let context):
            return error("A value of another type is there.", context.codingPath, message: message)
        case DecodingError.valueNotFound(_, let context):
            return error("Nothing is there.", context.codingPath, message: message)
        case DecodingError.keyNotFound(let key, let context):
            return error("Nothing is there.", context.codingPath + [key], message: message)
        case DecodingError.dataCorrupted(let context):
            return error("What is there is none of the values that the type has.", context.codingPath, message: message)
        default:
            var failure = error("The type does not decode it.", [], message: message)
            failure.details["type"] = "\(type(of: cause))"
            return failure
        }
    }

    /// As a person writes it: `list[2].name`.
    private static func text(of path: [any CodingKey]) -> String {
        path.reduce("") { text, key in
            if let index = key.intValue { return text + "[\(index)]" }
            return text + (text.isEmpty ? "" : ".") + key.stringValue
        }
    }
}
