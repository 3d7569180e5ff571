"""The texts on which tokenizers are compared: languages, emoji, code, white space, control characters, broken UTF-8."""
import random

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It's 3.14159 o'clock, isn't it? I'd say we'll see; they've DON'T'd.",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein — Straßenbahnhaltestellenhäuschen!",
    "Être ou ne pas être, telle est la question… «naïveté» à Noël, cœur d'œuvre.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío; ¿añoraba a su querido cachorro?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Нещо на Български, Ґанок Їжак.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία — ὁ Ζεὺς καὶ ἡ Ἀθηνᾶ.",
    "我想在apple工作1314151天～ 天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。龘㐀𠀀",
    "いろはにほへと ちりぬるを。カタカナとひらがなと漢字が混ざったテキスト、ﾊﾝｶｸも！ー",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 각 ㄱㄴㄷ",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق ١٢٣٤٥ لا إله",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले १२३ क़ क्षत्रिय",
    "বাংলা ভাষা একটি ইন্দো-আর্য ভাষা। தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ ଓଡ଼ିଆ සිංහල",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓ ກຂຄງ",
    "កាន់តែពិសេសអាចខលចេញ မြန်မာဘာသာ བོད་སྐད་ ქართული Հայերեն አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ",
    "Tiếng Việt: Cửa Việt, ngôn ngữ. Türkçe: İıŞşĞğ. Polski: zażółć gęślą jaźń. Íslenska: þæö",
    "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ☕️ 1️⃣",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ℕ ⊆ ℕ₀ ⊂ ℤ ⊂ ℚ ⊂ ℝ ⊂ ℂ, E=mc², ½ ¾ ⅓ ² ³ ¹ Ⅷ ㊿ ₁",
    "e\u0301 re\u0301sume\u0301 A\u030apfel n\u0303 o\u0302\u0323 \u1100\u1161\u11a8 q\u0307\u0323 \u0041\u0301\u0327\u0316 \u212b \ufb01 \u01c6 \u00c5",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞",
    "fi ﬂ ﬃ Ⅳ ① ㍿ ™ ℃ ｆｕｌｌｗｉｄｔｈ　ＡＢＣ１２３ ½ µ ſ ẛ ﷺ",
    "\ufeffBOM, zero\u200bwidth\u200cjoin\u200der\u2060s, soft\u00adhyphen, nbsp\u00a0here, ideographic\u3000space, line\u2028para\u2029end\u0085nel",
    "tabs\tand\ttabs\t\t\tmore \t mix \r\n windows\r\n\r\n mac\r old \v vertical \f feed",
    "control\x00\x01\x02\x07\x08\x0e\x1b[31mred\x1b[0m\x1c\x1d\x1e\x1f\x7f end",
    "def f(x):\n    if x > 0:\n        return x**2  # square\n\telse:\n\t\traise ValueError(f\"bad {x!r}\")\n\n\nprint(f(3))\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }  /* comment */ // done\n#include <stdio.h>\n",
    "SELECT * FROM users WHERE name = 'O''Brien' AND id IN (1,22,333,4444) ORDER BY 1 DESC;--",
    '{"key": [1, 2.5e-10, null, true], "nested": {"a\\"b": "\\u00e9\\n"}, "url": "https://example.com/a?b=c&d=%20#frag"}',
    "<html><body class=\"x\">&lt;p&gt; &amp; &#x27;</body></html> <|endoftext|> <s>[INST] hi [/INST]</s> <unk> <pad>",
    "$1,234,567.89 +49-30-1234567 2024-02-29T23:59:59Z 192.168.0.1 v1.2.3-rc.4 10^6 1e-5 0b1010 3333333333",
    "CamelCaseWord snake_case_word kebab-case-word SCREAMING_CASE iPhone McDonald's O'REILLY'S 'tis HTTPServer2Go",
    "I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL I'ſ it'S",
    "!!!!!! ?????? ...... ------======= ''''''```````\"\"\"\"  @@##$$%%^^&&**(()) ~~~ ||| \\\\ /// ___ +++",
    "a  b   c    d     e      f       g        h         i          j                               k",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n",
    "   leading and trailing   ", "\n\n\nleading lines\n\n\n", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u3000", "\u00a0 ", "",
    "a", " a", "a ", " a ", "1", " 1", "12", "123", "1234", "12345", "1 2 3", "'", "''", "'s", " 's", "▁", "▁a", " ▁ ", "a▁b", "Ġ", "ĠaĊ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀÀ漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢漢😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀",
    "<0x0A> <0xE2><0x96> <0xZZ> <0x1>", "</w> ## ##ing un##related @@ word</w>",
]

BROKEN = [
    b"\xff", b"\xc3", b"a\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82\xac\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xed\xa0\x80",
    b"\xed\xa0\xbd\xed\xb8\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf4\x90\x80\x80", b"\x80\x81 \xbf", b"abc \xfe\xff def \xe4\xb8 \xad\n",
    bytes(range(128, 256)), b"Latin-1: caf\xe9 na\xefve \xa9 2024", b"mid\xe2\x28\xa1dle \xe2\x82\x28 x",
]


def fixed_texts():
    """As bytes, to include broken UTF-8."""
    whole = "\n".join(s for s in SENTENCES if len(s) > 20)
    return [s.encode() for s in SENTENCES] + BROKEN + [whole.encode()]


def random_texts(seed, count):
    """Random combinations of pieces of the others, single characters and raw bytes."""
    rng = random.Random(seed)
    characters = sorted(set("".join(SENTENCES)))
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.choice([1, 2, 4, 8, 30])):
            kind = rng.random()
            if kind < 0.35:
                sentence = rng.choice(SENTENCES)
                begin = rng.randrange(len(sentence) + 1)
                parts.append(sentence[begin:begin + rng.choice([1, 3, 10, 40])].encode())
            elif kind < 0.7:
                parts.append(rng.choice(characters).encode() * rng.choice([1, 1, 1, 2, 3, 17]))
            elif kind < 0.9:
                parts.append(rng.choice([b" ", b"  ", b"\n", b" \n", b"\t", b"'", b"1", b"\r\n", b" a", b"A"]))
            elif kind < 0.95:
                code = rng.randrange(0x20000)
                parts.append(chr(code if not 0xD800 <= code < 0xE000 else 0x41).encode())
            else:
                parts.append(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4))))
        texts.append(b"".join(parts))
    return texts


def as_hugging_face_sees_it(text):
    return text.decode("utf-8", errors="replace")
