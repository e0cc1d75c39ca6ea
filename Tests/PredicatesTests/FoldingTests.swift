import Foundation
import NephosCore
import NephosPredicates
import Testing

@Suite struct FoldingTests {
    @Test(arguments: [
        ("ÀÉß", "àéß", "AEß", "aeß"),
        ("e\u{301}", "\u{e9}", "e", "e"),
        ("ΟΔΟΣ οδος", "οδοσ οδοσ", "ΟΔΟΣ οδος", "οδοσ οδοσ"),
        ("Ά", "ά", "Α", "α"),
        ("İIıi", "i\u{307}iıi", "IIıi", "iiıi"),
        ("\u{212a}\u{212b}", "k\u{e5}", "KA", "ka"),
        ("Й ё", "й ё", "И е", "и е"),
        ("Ø Ł Đ", "ø ł đ", "Ø Ł Đ", "ø ł đ"),
        ("ǅ ﬁ Ⅷ", "ǆ ﬁ ⅷ", "ǅ ﬁ Ⅷ", "ǆ ﬁ ⅷ"),
        ("がか\u{3099}", "がが", "がが", "がが"),
        ("\u{1112}\u{1161}\u{11ab}글", "한글", "한글", "한글"),
        ("שָׁלוֹם", "שָׁלוֹם", "שלום", "שלום"),
        ("q\u{307}\u{323}", "q\u{323}\u{307}", "q", "q"),
        ("\u{958}", "\u{915}\u{93c}", "\u{915}\u{93c}", "\u{915}\u{93c}"),
    ])
    func theTableOfFolding(_ text: String, _ small: String, _ plain: String, _ both: String) {
        #expect(
            Array(FoldingRule.v1.fold(text, .caseInsensitive).utf8)
                == Array(small.precomposedStringWithCanonicalMapping.utf8))
        #expect(Array(FoldingRule.v1.fold(text, .diacriticInsensitive).utf8) == Array(plain.utf8))
        #expect(Array(FoldingRule.v1.fold(text, [.caseInsensitive, .diacriticInsensitive]).utf8) == Array(both.utf8))
        #expect(Array(FoldingRule.v1.fold(text, []).utf8) == Array(text.utf8))
    }

    /// The folding of every code point in version 1, as dev/generate-folding.py prints it from another implementation of
    /// Unicode. It never changes: indexes have been folded with it.
    @Test(
        arguments: [
            (Folding.caseInsensitive, 0xff3b_fe7c_0c41_561a), (.diacriticInsensitive, 0x6533_f445_3e9c_0789),
            ([.caseInsensitive, .diacriticInsensitive], 0xf4db_11cb_0a4a_15cc),
        ] as [(Folding, UInt64)])
    func versionOneFoldsEveryCodePointForGoodAsItDid(_ folding: Folding, _ digest: UInt64) {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for value in UInt32(0)...0x10ffff {
            guard let scalar = Unicode.Scalar(value) else { continue }
            let folded = FoldingRule.v1.fold(String(scalar), folding)
            for byte in folded.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
            hash = (hash ^ 0xff) &* 0x0000_0100_0000_01b3
        }
        #expect(hash == digest)
    }

    @Test(arguments: 0..<5) func takenApartAndTogetherIsTheSame(seed: UInt64) {
        var generator = SplitMix64(seed: seed)
        let pieces: [Unicode.Scalar] = [
            "a", "e", "o", "\u{e9}", "\u{301}", "\u{323}", "\u{307}", "\u{308}", "\u{1ea5}", "\u{345}", "\u{1100}",
            "\u{1161}", "\u{11a8}", "가", "\u{3099}", "か", "\u{93c}", "\u{915}", "α", "\u{300}", "\u{5b0}", "\u{5c1}",
            "\u{9c7}", "\u{9be}", " ",
        ]
        for _ in 0..<2_000 {
            var view = String.UnicodeScalarView()
            for _ in 0..<Int.random(in: 1...8, using: &generator) {
                if let piece = pieces.randomElement(using: &generator) { view.append(piece) }
            }
            let text = String(view)
            // In two steps: Foundation leaves a syllable and its last part as they are.
            let composed = Array(
                text.decomposedStringWithCanonicalMapping.precomposedStringWithCanonicalMapping.utf8)
            #expect(
                Array(FoldingRule.v1.fold(text, .caseInsensitive).utf8) == composed,
                "\(text.unicodeScalars.map(\.value))")
            for folding: Folding in [.diacriticInsensitive, [.caseInsensitive, .diacriticInsensitive]] {
                let once = FoldingRule.v1.fold(text, folding)
                #expect(FoldingRule.v1.fold(once, folding).hasSameBytes(as: once))
                let apart = FoldingRule.v1.fold(text.decomposedStringWithCanonicalMapping, folding)
                #expect(apart.hasSameBytes(as: once))
            }
        }
    }

    @Test func wordsStandBetweenWhatIsNoLetter() {
        #expect(FoldingRule.v1.words(of: "  L’été, the été-2; THE_end!") == ["l", "ete", "the", "2", "end"])
        #expect(
            FoldingRule.v1.words(of: "東京Tower のビル") == [
                "東", "京", "tower", "の", "ヒ\u{3099}".precomposedStringWithCanonicalMapping, "ル",
            ])
        #expect(FoldingRule.v1.words(of: "… - 🙂").isEmpty)
    }
}
