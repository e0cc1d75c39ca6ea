/// ``FoldingTable`` as it is looked up: flags of every code point in a row, and what few have in dictionaries.
struct FoldingData: Sendable {
    static let shared = FoldingData()

    /// Code points from here on have no flags: none of them folds, and none stands between words.
    private static let flagged: UInt32 = 0x30000
    private static let takenApart: UInt8 = 1
    private static let hasSmallLetter: UInt8 = 2
    private static let isMark: UInt8 = 4
    private static let joinsPrevious: UInt8 = 8
    private static let separates: UInt8 = 16
    private static let leftOut: UInt8 = 32
    /// What `[d]` leaves out: marks of the Latin, Greek and Cyrillic scripts, of Hebrew and of Arabic.
    private static let leftOutRanges: [ClosedRange<UInt32>] = [
        0x300...0x36f, 0x591...0x5bd, 0x5bf...0x5bf, 0x5c1...0x5c2, 0x5c4...0x5c5, 0x5c7...0x5c7, 0x64b...0x65f,
        0x670...0x670, 0x1ab0...0x1aff, 0x1dc0...0x1dff, 0x20d0...0x20ff, 0xfe20...0xfe2f,
    ]

    /// Where ``simple`` ends: below are the letters of most scripts with capitals or accents.
    private static let simpleEnd: UInt32 = 0x3000

    /// For each folding, what a code point becomes by itself; common texts need no more. 0 where that is not a single
    /// code point, of at most three bytes, that stays apart from its neighbours.
    private var simple: [[UInt32]] = []
    private var flags = [UInt8](repeating: 0, count: Int(flagged))
    private var parts: [UInt32: [UInt32]] = [:]
    private var smallLetters: [UInt32: UInt32] = [:]
    private var classes: [UInt32: UInt8] = [:]
    private var joined: [UInt64: UInt32] = [:]

    private init() {
        var single: [UInt32: [UInt32]] = [:]
        for entry in Self.entries(FoldingTable.decompositions) {
            let numbers = Self.numbers(entry)
            guard let whole = numbers.first else { continue }
            single[whole] = Array(numbers.dropFirst())
            set(Self.takenApart, whole)
            if numbers.count == 3, entry.contains("=") {
                joined[Self.pair(numbers[1], numbers[2])] = whole
                set(Self.joinsPrevious, numbers[2])
            }
        }
        for whole in single.keys { parts[whole] = Self.expanded(whole, single) }
        for entry in Self.entries(FoldingTable.smallLetters) {
            let numbers = Self.numbers(entry)
            smallLetters[numbers[0]] = numbers[1]
            set(Self.hasSmallLetter, numbers[0])
        }
        for entry in Self.entries(FoldingTable.combiningClasses) {
            let numbers = Self.numbers(entry)
            for mark in numbers[0]...numbers[1] {
                classes[mark] = UInt8(truncatingIfNeeded: numbers[2])
                set(Self.isMark, mark)
            }
        }
        for entry in Self.entries(FoldingTable.separators) {
            let numbers = Self.numbers(entry)
            for separator in numbers[0]...numbers[1] { set(Self.separates, separator) }
        }
        for scalar in Self.leftOutRanges.joined() { set(Self.leftOut, scalar) }
        // The second and third parts of Korean syllables.
        for part in UInt32(0x1161)...0x1175 { set(Self.joinsPrevious, part) }
        for part in UInt32(0x11a8)...0x11c2 { set(Self.joinsPrevious, part) }
        simple = (0..<4).map { folding in
            (0..<Self.simpleEnd).map { simpleForm(of: $0, Folding(rawValue: folding)) }
        }
    }

    private func simpleForm(of scalar: UInt32, _ folding: Folding) -> UInt32 {
        let joins = Self.isMark | Self.joinsPrevious
        if flags(of: scalar) == 0 { return scalar }
        let folded = fold([scalar], folding)
        return folded.count == 1 && folded[0] < 0x10000 && flags(of: folded[0]) & joins == 0 ? folded[0] : 0
    }

    private mutating func set(_ flag: UInt8, _ scalar: UInt32) {
        if scalar < Self.flagged { flags[Int(scalar)] |= flag }
    }

    /// All parts of a code point whose parts have parts. The table is of our own making and has no circles.
    private static func expanded(_ scalar: UInt32, _ single: [UInt32: [UInt32]]) -> [UInt32] {
        single[scalar]?.flatMap { expanded($0, single) } ?? [scalar]
    }

    private static func entries(_ table: StaticString) -> [Substring] {
        table.description.split { $0 == " " || $0 == "\n" }
    }

    private static func numbers(_ entry: Substring) -> [UInt32] {
        entry.split { "=!+-".contains($0) }.compactMap { UInt32($0, radix: 16) }
    }

    private static func pair(_ first: UInt32, _ second: UInt32) -> UInt64 { UInt64(first) << 32 | UInt64(second) }

    @inline(__always)
    private func flags(of scalar: UInt32) -> UInt8 { scalar < Self.flagged ? flags[Int(scalar)] : 0 }
}

// MARK: Folding

extension FoldingData {
    /// The bytes of a well-formed text, folded.
    func folded(_ bytes: UnsafeBufferPointer<UInt8>, _ folding: Folding) -> [UInt8] {
        if let result = simplyFolded(bytes, folding) { return result }
        var scalars: [UInt32] = []
        scalars.reserveCapacity(bytes.count)
        var place = 0
        while place < bytes.count {
            let (scalar, next) = bytes.codePoint(at: place)
            scalars.append(scalar)
            place = next
        }
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        for scalar in fold(scalars, folding) {
            guard let scalar = Unicode.Scalar(scalar), let encoded = UTF8.encode(scalar) else { continue }
            result.append(contentsOf: encoded)
        }
        return result
    }

    /// A place of a well-formed text from the given one on, though not much later, where what is before it folds as it does
    /// within the whole; nil: it has none there.
    func safeCut(in bytes: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        guard start < bytes.count else { return nil }
        var place = start
        while place > 0, bytes[place] & 0xc0 == 0x80 { place -= 1 }
        let end = min(bytes.count, start + 1024)
        while place < end {
            let (scalar, next) = bytes.codePoint(at: place)
            // Neither does it join what is before, nor is it put in order with that.
            if scalar < 0x80 || flags(of: scalar) & ~Self.separates == 0 { return place }
            place = next
        }
        return nil
    }

    /// Folds each code point by itself; nil if that is not how this text is folded.
    private func simplyFolded(_ bytes: UnsafeBufferPointer<UInt8>, _ folding: Folding) -> [UInt8]? {
        let relevant = ~Self.separates
        let simple = simple[Int(folding.rawValue & 3)]
        var isSimple = true
        // ASCII stays ASCII, and nothing simple has more than three bytes: no text more than doubles.
        let result = [UInt8](unsafeUninitializedCapacity: 2 * bytes.count) { result, count in
            var place = 0
            while place < bytes.count {
                let (scalar, next) = bytes.codePoint(at: place)
                if scalar < Self.simpleEnd {
                    let folded = simple[Int(scalar)]
                    guard folded != 0 || scalar == 0 else {
                        isSimple = false
                        return
                    }
                    Self.write(folded, to: result, &count)
                } else {
                    guard flags(of: scalar) & relevant == 0 else {
                        isSimple = false
                        return
                    }
                    for index in place..<next {
                        result[count] = bytes[index]
                        count += 1
                    }
                }
                place = next
            }
        }
        return isSimple ? result : nil
    }

    /// Writes a code point of at most three bytes, as all are to which `simple` leads.
    private static func write(_ scalar: UInt32, to bytes: UnsafeMutableBufferPointer<UInt8>, _ count: inout Int) {
        func put(_ byte: UInt32) {
            bytes[count] = UInt8(truncatingIfNeeded: byte)
            count += 1
        }
        if scalar < 0x80 {
            put(scalar)
        } else if scalar < 0x800 {
            put(0xc0 | scalar >> 6)
            put(0x80 | scalar & 0x3f)
        } else {
            put(0xe0 | scalar >> 12)
            put(0x80 | scalar >> 6 & 0x3f)
            put(0x80 | scalar & 0x3f)
        }
    }

    private func fold(_ scalars: [UInt32], _ folding: Folding) -> [UInt32] {
        var folded = takenApart(scalars, folding)
        orderMarks(&folded)
        join(&folded)
        return folded
    }

    private func takenApart(_ scalars: [UInt32], _ folding: Folding) -> [UInt32] {
        var result: [UInt32] = []
        result.reserveCapacity(scalars.count)
        let withoutMarks = folding.contains(.diacriticInsensitive)
        let withoutCapitals = folding.contains(.caseInsensitive)
        func add(_ scalar: UInt32) {
            let flags = flags(of: scalar)
            if withoutMarks, flags & Self.leftOut != 0 { return }
            let isCapital = withoutCapitals && flags & Self.hasSmallLetter != 0
            result.append(isCapital ? smallLetters[scalar] ?? scalar : scalar)
        }
        for scalar in scalars {
            if flags(of: scalar) & Self.takenApart != 0, let parts = parts[scalar] {
                for part in parts { add(part) }
            } else {
                add(scalar)
            }
        }
        return result
    }

    /// Brings marks after one another into the order of their classes; those of one class stay as they are.
    private func orderMarks(_ scalars: inout [UInt32]) {
        var place = 0
        while place < scalars.count {
            guard flags(of: scalars[place]) & Self.isMark != 0 else {
                place += 1
                continue
            }
            let start = place
            while place < scalars.count, flags(of: scalars[place]) & Self.isMark != 0 { place += 1 }
            guard place - start > 1 else { continue }
            let run = scalars[start..<place].enumerated().map { (classes[$1] ?? 0, $0, $1) }
            for (offset, mark) in run.sorted(by: { ($0.0, $0.1) < ($1.0, $1.1) }).enumerated() {
                scalars[start + offset] = mark.2
            }
        }
    }

    /// Puts together again what makes one code point (Unicode, section 3.11).
    private func join(_ scalars: inout [UInt32]) {
        var kept = 0
        var starter: Int?
        var lastClass: UInt8 = 0
        for scalar in scalars {
            let ownClass = flags(of: scalar) & Self.isMark != 0 ? classes[scalar] ?? 0 : 0
            if let place = starter, flags(of: scalar) & Self.joinsPrevious != 0,
                kept == place + 1 || (lastClass < ownClass && lastClass != 0),
                let whole = joined(scalars[place], scalar)
            {
                scalars[place] = whole
                continue
            }
            if ownClass == 0 { starter = kept }
            lastClass = ownClass
            scalars[kept] = scalar
            kept += 1
        }
        scalars.removeLast(scalars.count - kept)
    }

    private func joined(_ first: UInt32, _ second: UInt32) -> UInt32? {
        if (0x1100...0x1112).contains(first), (0x1161...0x1175).contains(second) {
            return 0xac00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28
        }
        if (0xac00...0xd7a3).contains(first), (first - 0xac00) % 28 == 0, (0x11a8...0x11c2).contains(second) {
            return first + (second - 0x11a7)
        }
        return joined[Self.pair(first, second)]
    }
}

// MARK: Words

extension FoldingData {
    /// Calls with each word of a folded text until it is told to stop.
    func forEachWord(of bytes: UnsafeBufferPointer<UInt8>, _ body: (UnsafeBufferPointer<UInt8>) -> Bool) {
        var start = 0
        var place = 0
        func isWord(_ end: Int) -> Bool { start < end }
        func word(_ end: Int) -> UnsafeBufferPointer<UInt8> { UnsafeBufferPointer(rebasing: bytes[start..<end]) }
        while place < bytes.count {
            let (scalar, next) = bytes.codePoint(at: place)
            let separates = flags(of: scalar) & Self.separates != 0
            let isAlone = Self.isWordAlone(scalar)
            if separates || isAlone {
                if isWord(place), !body(word(place)) { return }
                start = separates ? next : place
                if isAlone {
                    if !body(word(next)) { return }
                    start = next
                }
            }
            place = next
        }
        if isWord(place) { _ = body(word(place)) }
    }

    /// Chinese characters and Japanese syllables.
    private static func isWordAlone(_ scalar: UInt32) -> Bool {
        switch scalar {
        case 0..<0x2e80: false
        case 0x2e80...0x2fdf, 0x3041...0x30ff, 0x3400...0x4dbf, 0x4e00...0x9fff, 0xf900...0xfaff, 0x20000...0x3ffff:
            true
        default: false
        }
    }
}
