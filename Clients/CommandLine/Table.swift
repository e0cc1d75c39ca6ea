import ArgumentParser
import Foundation
import NephosCore
import NephosZeroMQ

/// Rows under a heading, each column as wide as its widest cell. A row is one line, whatever is in its cells.
///
/// On a terminal a row fits its width: long cells are cut in the middle, with a mark, unless `--wide` is given. Elsewhere
/// nothing is cut.
func table(_ heading: [String], _ rows: [[String]]) -> String {
    let isWide = CommandLine.arguments.contains("--wide")
    return Table([heading] + rows.map { $0.map { printable($0, keepsLines: false) } })
        .text(width: isWide ? nil : Terminal.width, stateColumn: heading.firstIndex(of: "STATE"))
}

/// Options of commands with tables.
struct TableOptions: ParsableArguments {
    @Flag(help: "Do not shorten the cells of tables on a terminal.") var wide = false
}

/// A time in a table: how long ago it was on a terminal, the date and time for scripts and after a week.
func tableTime(_ time: Timestamp, now: Timestamp = SystemClock().now) -> String {
    Terminal.isOutput && now.since(time) < .seconds(7 * 86_400) ? describe(time, before: now) : describe(time)
}

/// Columns of text, measured in the cells of a terminal.
struct Table {
    /// No column is made narrower than this.
    private static let columnMin = 12
    private static let gap = 2

    let rows: [[String]]

    init(_ rows: [[String]]) { self.rows = rows }

    /// - Parameter width: Cells of a line at most; nil: any number.
    /// - Parameter stateColumn: The column whose words have colours.
    func text(width: Int?, stateColumn: Int? = nil) -> String {
        let natural = (rows.first ?? []).indices.map { column in rows.map { $0[column].cellCount }.max() ?? 0 }
        let widths = width.map { Self.widths(natural, in: $0) } ?? natural
        return rows.map { row in
            let cells = row.enumerated().map { column, cell in
                let cut = cell.cut(toCells: widths[column])
                let shown = column == row.count - 1 ? cut : cut.padded(toCells: widths[column])
                guard column == stateColumn, let colour = Colour.of(state: cell) else { return shown }
                return colour(shown)
            }
            return cells.joined(separator: String(repeating: " ", count: Self.gap))
        }.joined(separator: "\n")
    }

    /// The widest columns give up what is too much.
    private static func widths(_ natural: [Int], in width: Int) -> [Int] {
        var widths = natural
        var excess = widths.reduce(0, +) + gap * max(0, widths.count - 1) - width
        while excess > 0 {
            guard let widest = widths.indices.max(by: { (widths[$0], $1) < (widths[$1], $0) }),
                widths[widest] > columnMin
            else { break }
            let second = widths.indices.filter { $0 != widest }.map { widths[$0] }.max() ?? 0
            let next = max(columnMin, min(widths[widest] - 1, second), widths[widest] - excess)
            excess -= widths[widest] - next
            widths[widest] = next
        }
        return widths
    }
}

extension String {
    /// How many cells of a terminal the text takes.
    var cellCount: Int { reduce(0) { $0 + $1.cellCount } }

    /// The text with spaces behind it.
    func padded(toCells count: Int) -> String { self + String(repeating: " ", count: Swift.max(0, count - cellCount)) }

    /// The text in at most so many cells: of a longer one the beginning and the end, with a mark between them.
    func cut(toCells count: Int) -> String {
        guard cellCount > count else { return self }
        guard count > 1 else { return String("…".prefix(count)) }
        let tail = (count - 1) / 2
        let end = String(reversed()).prefix(cells: tail)
        return prefix(cells: count - 1 - tail) + "…" + String(end.reversed())
    }

    /// The beginning of the text, in at most so many cells.
    func prefix(cells count: Int) -> String {
        var (text, left) = ("", count)
        for character in self {
            left -= character.cellCount
            guard left >= 0 else { break }
            text.append(character)
        }
        return text
    }
}

extension Character {
    /// One; none of a mark alone, two of East Asian wide characters and of emoji.
    fileprivate var cellCount: Int {
        guard let first = unicodeScalars.first else { return 0 }
        if first.isWide || unicodeScalars.contains("\u{fe0f}") { return 2 }
        switch first.properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format: return 0
        default: return 1
        }
    }
}

extension Unicode.Scalar {
    /// Whether its East Asian width is wide or full (Unicode 15, in whole blocks), or it is shown as an emoji by itself.
    fileprivate var isWide: Bool {
        switch value {
        case 0x1100...0x115f, 0x2e80...0x303e, 0x3041...0x4dbf, 0x4e00...0xa4cf, 0xa960...0xa97f, 0xac00...0xd7a3,
            0xf900...0xfaff, 0xfe30...0xfe6f, 0xff01...0xff60, 0xffe0...0xffe6, 0x17000...0x18cff, 0x1b000...0x1b2ff,
            0x20000...0x3fffd:
            true
        default: properties.isEmojiPresentation
        }
    }
}
