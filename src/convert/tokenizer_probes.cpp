#include "convert/tokenizer_probes.h"

#include <array>

namespace millrace {
namespace {

constexpr std::array<std::string_view, 15> kProbes{
    "Hello, world! It's a test; isn't it? We'll see, they've GONE, I'M HERE, YOU'RE'S 'Tis.",
    " leading space,  two  spaces,   three   and    four\ttab \t mixed  ",
    "\n one\n\n two \n\n\n three\r\n four\r\n\r\n five \n",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F a1b22c333 ½ Ⅷ ٣٤٥",
    "camelCase PascalCaseText ALLCAPS mixedUPCase HTTPServer iPhone's snake_case_name kebab-case",
    "!!! ... ?!? --- *** ((nested)) [brackets] {braces} <tags/> a/b\\c #hash @at $5 100% ^ & ~ ` | = +",
    "¿Cómo estás? Über Straße naïve façade Ångström; Ελληνικά; Привет, мир; עברית; العربية",
    "Cafe\xCC\x81 e\xCC\x81 combining, caf\xC3\xA9 composed, \xEF\xAC\x81 ligature, \xE2\x84\xAB sign",
    "漢字とひらがなとカタカナ、中文测试。한국어 시험 日本語123テスト",
    "हिन्दी भाषा ไทย தமிழ் বাংলা ខ្មែរ",
    "😀 🦙 👩‍👩‍👧‍👦 🇩🇪 ☃ → ∑ ≠ ♫ 😀😀",
    "def f(x):\n    return x**2  # comment\n\n\tfor (int i = 0; i < n; ++i) { a[i] += 1; }\n",
    "https://example.com/path?query=1&b=2#frag user@mail.org 2024-01-31T12:34:56Z v1.2.3-rc1",
    "\xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\x98single\xE2\x80\x99 it\xE2\x80\x99s \xE2\x80\x94 dash \xE2\x80\xA6 "
    "\xC2\xA0nbsp \xE3\x80\x80wide",
    "",
};

}  // namespace

std::span<const std::string_view> tokenizer_probes() { return kProbes; }

}  // namespace millrace
