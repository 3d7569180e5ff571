#include "text/unicode/properties.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <string>

namespace millrace {
namespace {

using enum Category;
using Categories = std::bitset<kCategoryCount>;

Categories mask(std::initializer_list<Category> categories) {
  Categories bits;
  for (const Category c : categories) bits.set(static_cast<size_t>(c));
  return bits;
}

CodeSet set_of(const Categories& wanted) {
  CodeSet set;
  const auto runs = category_runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1].first : 0x110000;
    if (wanted.test(static_cast<size_t>(runs[i].category))) set.add(runs[i].first, end - 1);
  }
  return set;
}

struct CategoryName {
  std::string_view brief, full;
  Categories categories;
};

const std::vector<CategoryName>& category_names() {
  static const std::vector<CategoryName> names = {
      {"l", "letter", mask({Lu, Ll, Lt, Lm, Lo})},
      {"lc", "casedletter", mask({Lu, Ll, Lt})},
      {"lu", "uppercaseletter", mask({Lu})},
      {"ll", "lowercaseletter", mask({Ll})},
      {"lt", "titlecaseletter", mask({Lt})},
      {"lm", "modifierletter", mask({Lm})},
      {"lo", "otherletter", mask({Lo})},
      {"m", "mark", mask({Mn, Mc, Me})},
      {"mn", "nonspacingmark", mask({Mn})},
      {"mc", "spacingmark", mask({Mc})},
      {"me", "enclosingmark", mask({Me})},
      {"n", "number", mask({Nd, Nl, No})},
      {"nd", "decimalnumber", mask({Nd})},
      {"nl", "letternumber", mask({Nl})},
      {"no", "othernumber", mask({No})},
      {"p", "punctuation", mask({Pc, Pd, Ps, Pe, Pi, Pf, Po})},
      {"pc", "connectorpunctuation", mask({Pc})},
      {"pd", "dashpunctuation", mask({Pd})},
      {"ps", "openpunctuation", mask({Ps})},
      {"pe", "closepunctuation", mask({Pe})},
      {"pi", "initialpunctuation", mask({Pi})},
      {"pf", "finalpunctuation", mask({Pf})},
      {"po", "otherpunctuation", mask({Po})},
      {"s", "symbol", mask({Sm, Sc, Sk, So})},
      {"sm", "mathsymbol", mask({Sm})},
      {"sc", "currencysymbol", mask({Sc})},
      {"sk", "modifiersymbol", mask({Sk})},
      {"so", "othersymbol", mask({So})},
      {"z", "separator", mask({Zs, Zl, Zp})},
      {"zs", "spaceseparator", mask({Zs})},
      {"zl", "lineseparator", mask({Zl})},
      {"zp", "paragraphseparator", mask({Zp})},
      {"c", "other", mask({Cc, Cf, Co, Cs, Cn})},
      {"cc", "control", mask({Cc})},
      {"cf", "format", mask({Cf})},
      {"co", "privateuse", mask({Co})},
      {"cs", "surrogate", mask({Cs})},
      {"cn", "unassigned", mask({Cn})},
  };
  return names;
}

CodeSet alphabetic_set() {
  CodeSet set = category_set({Lu, Ll, Lt, Lm, Lo, Nl});
  set.add(other_alphabetic());
  return set;
}

CodeSet graphic_set() {
  CodeSet set = white_space_set();
  set.add(category_set({Cc, Cs, Cn}));
  return set.complement();
}

std::optional<CodeSet> binary_property(std::string_view name) {
  if (name == "any") return CodeSet{{0, 0x10FFFF}};
  if (name == "ascii") return CodeSet{{0, 0x7F}};
  if (name == "assigned") return category_set({Cn}).complement();
  if (name == "alphabetic" || name == "alpha") return alphabetic_set();
  if (name == "whitespace" || name == "space") return white_space_set();
  if (name == "word") return word_set();
  if (name == "digit") return category_set({Nd});
  if (name == "punct") return category_set({Pc, Pd, Ps, Pe, Pi, Pf, Po});
  if (name == "cntrl") return category_set({Cc});
  if (name == "xdigit") return CodeSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  if (name == "graph") return graphic_set();
  if (name == "alnum") {
    CodeSet set = alphabetic_set();
    set.add(category_set({Nd}));
    return set;
  }
  if (name == "blank" || name == "print") {
    CodeSet set = category_set({Zs});
    if (name == "blank") set.add('\t', '\t');
    if (name == "print") set.add(graphic_set());
    return set;
  }
  if (name == "uppercase" || name == "upper") {
    CodeSet set = category_set({Lu});
    set.add(other_uppercase());
    return set;
  }
  if (name == "lowercase" || name == "lower") {
    CodeSet set = category_set({Ll});
    set.add(other_lowercase());
    return set;
  }
  return std::nullopt;
}

std::optional<CodeSet> script_set(std::string_view name) {
  const auto names = script_names();
  const auto found = std::find(names.begin() + 1, names.end(), name);
  if (found == names.end()) return std::nullopt;
  CodeSet set;
  const auto runs = script_runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1].first : 0x110000;
    if (runs[i].script == found - names.begin()) set.add(runs[i].first, end - 1);
  }
  return set;
}

}  // namespace

CodeSet category_set(std::initializer_list<Category> categories) { return set_of(mask(categories)); }

std::optional<CodeSet> unicode_property(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    key.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  for (const CategoryName& entry : category_names()) {
    if (key == entry.brief || key == entry.full) return set_of(entry.categories);
  }
  if (auto set = binary_property(key)) return set;
  return script_set(key);
}

CodeSet white_space_set() {
  return {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
}

CodeSet word_set() {
  CodeSet set = alphabetic_set();
  set.add(category_set({Mn, Mc, Me, Nd, Pc}));
  return set;
}

CodeSet lone_word_set() {
  CodeSet set = word_set();
  set.add(CodeSet{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}});
  return set;
}

CodeSet posix_punctuation_set() { return category_set({Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So}); }

bool is_white_space(char32_t code) {
  static const CodeTable table(white_space_set());
  return table.contains(code);
}

bool is_word(char32_t code) {
  static const CodeTable table(lone_word_set());
  return table.contains(code);
}

bool is_numeric(char32_t code) {
  static const CodeTable table(category_set({Nd, Nl, No}));
  return table.contains(code);
}

bool is_punctuation(char32_t code) {
  static const CodeTable table([] {
    CodeSet set = category_set({Pc, Pd, Ps, Pe, Pi, Pf, Po});
    set.add(CodeSet{{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}});
    return set.toggled(CodeSet(punctuation_differences()));
  }());
  return table.contains(code);
}

bool is_combining_mark(char32_t code) {
  static const CodeTable table(category_set({Mn, Mc, Me}).toggled(CodeSet(combining_differences())));
  return table.contains(code);
}

bool is_nonspacing_mark(char32_t code) {
  static const CodeTable table(category_set({Mn}).toggled(CodeSet(nonspacing_differences())));
  return table.contains(code);
}

bool is_control(char32_t code) {
  static const CodeTable table([] {
    const CodeSet spaces{{'\t', '\n'}, {'\r', '\r'}};
    return category_set({Cc, Cf, Co}).intersection(spaces.complement()).toggled(CodeSet(control_differences()));
  }());
  return table.contains(code);
}

uint8_t script_of(char32_t code) {
  const auto runs = script_runs();
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), code, [](char32_t c, const ScriptRun& run) { return c < run.first; });
  return std::prev(after)->script;
}

}  // namespace millrace
