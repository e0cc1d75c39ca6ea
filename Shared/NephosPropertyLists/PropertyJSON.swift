internal import Foundation
package import NephosCore

// Values as JSON with their types: a real always has a point or an exponent, an
// integer never. `JSONEncoder` knows neither. `PropertyValue(json:)` reads it.

extension PropertyValue {
    /// One line of JSON, keys in the order of their bytes.
    ///
    /// What JSON lacks is an object with one key: `{"$date": "2026-01-31T12:00:00.000Z"}` (finer
    /// if the date is), `{"$data": base64}`, `{"$real": "inf"}`. A dictionary that looks like one of
    /// these goes into `{"$dictionary": ...}`.
    package var typedJSON: String {
        var text = ""
        write(to: &text)
        return text
    }

    private func write(to text: inout String) {
        switch self {
        case .boolean(let value): text += value ? "true" : "false"
        case .integer(let value): text += String(value)
        case .real(let value): text += value.isFinite ? value.description : "{\"$real\":\"\(value)\"}"
        case .string(let value): JSONText.write(value, to: &text)
        case .date(let value): text += "{\"$date\":\"\(PropertyDate.text(of: value))\"}"
        case .data(let value): text += "{\"$data\":\"\(value.base64EncodedString())\"}"
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .dictionary(let values):
            let isAmbiguous = values.count == 1 && values.first?.key.rawValue.hasPrefix("$") == true
            if isAmbiguous { text += "{\"$dictionary\":" }
            text += "{"
            for (index, entry) in values.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { text += "," }
                JSONText.write(entry.key.rawValue, to: &text)
                text += ":"
                entry.value.write(to: &text)
            }
            text += isAmbiguous ? "}}" : "}"
        }
    }
}
