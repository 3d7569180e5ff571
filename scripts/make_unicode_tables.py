#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_data.cpp: general categories, scripts, the irregular members of a few properties, case folding.

Hugging Face tokenizers is the reference, so the tables come from its own regex engine, code point by code point: they agree with
whatever version of Unicode it was built with. Its normalizers and some pre-tokenizers use older tables; the differences are written,
too. Takes a few minutes. Needs PyPI's `tokenizers`.
"""
import pathlib
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).parent.parent / "src/text/unicode/unicode_data.cpp"
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, SCALARS))

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs Cn".split()
ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo
Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic
Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic
Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul
Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian
Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin
Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi
Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar
Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian
Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya
Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian
Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le
Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic
Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


def members(pattern):
    """The code points that a one-character pattern matches."""
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    return {SCALARS[i] for _, (begin, end) in split.pre_tokenize_str(EVERYTHING) for i in range(begin, end)}


def punctuation():
    kept = pre_tokenizers.Punctuation("removed").pre_tokenize_str(EVERYTHING)
    return set(SCALARS) - {SCALARS[i] for _, (begin, end) in kept for i in range(begin, end)}


def removed_by(normalizer):
    """The characters that a normalizer drops."""
    kept = set(normalizer.normalize_str(EVERYTHING))
    return {c for c in SCALARS if chr(c) not in kept}


def never_decomposed():
    """The characters that compatibility decomposition changes today, but not in Hugging Face's normalizers."""
    nfkd = normalizers.NFKD()
    candidates = [c for c in SCALARS if unicodedata.normalize("NFKD", chr(c)) != chr(c)]
    return {c for c in candidates if nfkd.normalize_str(chr(c)) == chr(c)}


def runs(values):
    """[(first code point of a run, value)] for a list with one value per code point."""
    return [(c, v) for c, v in enumerate(values) if c == 0 or v != values[c - 1]]


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def case_folds():
    """(c, folded) for the characters that simple case folding changes."""
    for c in SCALARS:
        folded = chr(c).casefold()
        if len(folded) != 1:
            folded = chr(c).lower()
        if len(folded) == 1 and ord(folded) != c:
            yield c, ord(folded)


def rows(items):
    line = " "
    for item in items:
        if len(line) + len(item) + 1 > 118:
            yield line
            line = " "
        line += " " + item
    yield line


def table(declaration, items):
    return f"const {declaration} = {{\n" + "\n".join(rows(f"{i}," for i in items)) + "\n};\n"


def main():
    category = ["Cn"] * 0x110000
    category[0xD800:0xE000] = ["Cs"] * 0x800
    sets = {}
    for name in CATEGORIES:
        if name in ("Cs", "Cn"):
            continue
        sets[name] = members(f"\\p{{{name}}}")
        for c in sets[name]:
            category[c] = name

    script = [0] * 0x110000  # 0: unknown
    for i, name in enumerate(SCRIPTS):
        for c in members(f"\\p{{{name}}}"):
            script[c] = i + 1

    letters = set().union(*(sets[c] for c in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl")))
    alphabetic = members("\\p{Alphabetic}")
    assert letters <= alphabetic
    # properties.cpp builds \\w of this.
    words = alphabetic.union(*(sets[c] for c in ("Mn", "Mc", "Me", "Nd", "Pc")))
    assert members("[\\w]") == words
    assert members("\\w") == words | {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}
    assert members("\\d") == sets["Nd"]
    upper, lower = members("\\p{Uppercase}"), members("\\p{Lowercase}")
    assert sets["Lu"] <= upper and sets["Ll"] <= lower

    marks = sets["Mn"] | sets["Mc"] | sets["Me"]
    punctuations = set().union(*(sets[c] for c in ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po")), {c for c in range(128) if chr(c) in ASCII_PUNCTUATION})
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    spaces = members("\\s")
    decomposed = {c for c in SCALARS if unicodedata.normalize("NFD", chr(c)) != chr(c)}
    controls = (sets["Cc"] | sets["Cf"] | sets["Co"] | {0xFFFD}) - {9, 10, 13}

    pair = lambda r: f"{{{r[0]:#x}, {r[1]:#x}}}"
    text = [
        "// Made by scripts/make_unicode_tables.py; do not edit.\n// clang-format off",
        '#include "text/unicode/unicode_data.h"\n',
        "namespace millrace {\nnamespace {\n",
        f"using enum Category;\n",
        table("CategoryRun kCategories[]", [f"{{{c:#x}, {v}}}" for c, v in runs(category)]),
        table("ScriptRun kScripts[]", [f"{{{c:#x}, {v}}}" for c, v in runs(script)]),
        table("std::string_view kNames[]", ['""'] + [f'"{s.lower().replace("_", "")}"' for s in SCRIPTS]),
        table("CodeRange kAlphabetic[]", map(pair, ranges(alphabetic - letters))),
        table("CodeRange kUppercase[]", map(pair, ranges(upper - sets["Lu"]))),
        table("CodeRange kLowercase[]", map(pair, ranges(lower - sets["Ll"]))),
        table("CaseFold kFolds[]", map(pair, case_folds())),
        table("CodeRange kPunctuation[]", map(pair, ranges(punctuation() ^ punctuations))),
        table("CodeRange kCombining[]", map(pair, ranges(removed_by(normalizers.StripAccents()) ^ marks))),
        table("CodeRange kNonspacing[]", map(pair, ranges((removed_by(bert) - decomposed) ^ sets["Mn"] - decomposed))),
        table("CodeRange kControl[]", map(pair, ranges((removed_by(clean) ^ controls) - (spaces - controls)))),
        table("CodeRange kUndecomposed[]", map(pair, ranges(never_decomposed()))),
        "}  // namespace\n",
        "std::span<const CategoryRun> category_runs() { return kCategories; }",
        "std::span<const ScriptRun> script_runs() { return kScripts; }",
        "std::span<const std::string_view> script_names() { return kNames; }",
        "std::span<const CodeRange> other_alphabetic() { return kAlphabetic; }",
        "std::span<const CodeRange> other_uppercase() { return kUppercase; }",
        "std::span<const CodeRange> other_lowercase() { return kLowercase; }",
        "std::span<const CaseFold> case_folds() { return kFolds; }",
        "std::span<const CodeRange> punctuation_differences() { return kPunctuation; }",
        "std::span<const CodeRange> combining_differences() { return kCombining; }",
        "std::span<const CodeRange> nonspacing_differences() { return kNonspacing; }",
        "std::span<const CodeRange> control_differences() { return kControl; }",
        "std::span<const CodeRange> never_decomposed() { return kUndecomposed; }\n",
        "}  // namespace millrace",
    ]
    OUTPUT.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
