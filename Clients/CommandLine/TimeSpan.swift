import ArgumentParser

/// A length of time as a person writes it: `90s`, `30m`, `12h`, `7d`, `4w`.
struct TimeSpan: ExpressibleByArgument {
    var duration: Duration

    init?(argument: String) {
        let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400]
        guard let unit = argument.last.flatMap({ units[$0] }), let count = Int64(argument.dropLast()),
            (1...1_000_000).contains(count)
        else { return nil }
        duration = .seconds(count * unit)
    }
}
