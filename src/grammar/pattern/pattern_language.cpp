#include "grammar/pattern/pattern_language.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/pattern/pattern_lengths.h"
#include "text/regex/class_meaning.h"

namespace millrace {
namespace {

using Id = TextLanguages::Id;
using Kind = RegexNode::Kind;
using Anchor = RegexNode::Anchor;

constexpr size_t kMostAutomatonParts = 1000;
constexpr int64_t kMostUnrolled = 32;
constexpr size_t kMostWritten = 20000;  // parts, repetitions unrolled

bool any_part(const RegexNode& node, bool (*test)(const RegexNode&)) {
  return test(node) || std::any_of(node.children.begin(), node.children.end(),
                                   [&](const RegexNode& part) { return any_part(part, test); });
}

bool has_assertion(const RegexNode& node) {
  return any_part(node, [](const RegexNode& one) { return one.is_assertion(); });
}

bool is_look_behind(const RegexNode& node) { return node.kind == Kind::Look && node.behind; }
bool is_word_border(const RegexNode& node) { return node.kind == Kind::Anchor && node.anchor == Anchor::WordBorder; }
bool is_text_begin(const RegexNode& node) { return node.kind == Kind::Anchor && node.anchor == Anchor::TextBegin; }

size_t count_parts(const RegexNode& node) {
  size_t count = 1;
  for (const RegexNode& part : node.children) count += count_parts(part);
  return count;
}

// The character before the current position.
enum class Before : uint8_t { Begin, Word, Other, Unknown };

Before join(Before a, Before b) { return a == b ? a : Before::Unknown; }

Before behind(const RegexNode& node, Before before) {
  switch (node.kind) {
    case Kind::Set:
      if (node.set.without(ecma_word_characters()).empty()) return Before::Word;
      return node.set.without(ecma_other_characters()).empty() ? Before::Other : Before::Unknown;
    case Kind::Sequence:
      for (const RegexNode& part : node.children) before = behind(part, before);
      return before;
    case Kind::Alternatives: {
      Before all = behind(node.children.front(), before);
      for (size_t i = 1; i < node.children.size(); ++i) all = join(all, behind(node.children[i], before));
      return all;
    }
    case Kind::Repeat: {
      if (node.max == 0) return before;
      // One repetition is enough: a part either determines the character before it, or keeps it, or may do both.
      const Before once = behind(node.children.front(), before);
      return node.min == 0 ? join(once, before) : once;
    }
    default:
      return before;
  }
}

// Translates from right to left: each part is combined with the language of the whole rest of the text, so that a
// lookahead is an intersection with it.
class Translation {
 public:
  Translation(TextLanguages& languages, bool must_match) : languages_(languages), must_match_(must_match) {}

  Id write(const RegexNode& node, Id rest, Before before) {
    if (++written_ > kMostWritten) refuse("repetitions of assertions that multiply to very many");
    switch (node.kind) {
      case Kind::Set:
        return languages_.sequence(languages_.one_of(node.set), rest);
      case Kind::Sequence:
        return sequence(node, rest, before);
      case Kind::Alternatives: {
        std::vector<Id> ways;
        for (const RegexNode& part : node.children) ways.push_back(write(part, rest, before));
        return languages_.either(std::move(ways));
      }
      case Kind::Repeat:
        return repeat(node, rest, before);
      case Kind::Anchor:
        return anchor(node.anchor, rest, before);
      case Kind::Look:
        return look_ahead(node, rest, before);
      case Kind::Atomic:
        break;
    }
    refuse("an atomic group");
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail(ErrorKind::Usage, "the regular expression has {}, which cannot be enforced", what);
  }

  Id anchor(Anchor kind, Id rest, Before before) {
    switch (kind) {
      case Anchor::TextBegin:
        if (before == Before::Unknown) refuse("^ where it may be at the begin or not");
        return before == Before::Begin ? rest : TextLanguages::kNothing;
      case Anchor::TextEnd:
        return languages_.both({rest, end()});
      case Anchor::WordBorder:
        return boundary(rest, before);
      default:
        refuse("an anchor of lines");
    }
  }

  Id look_ahead(const RegexNode& node, Id rest, Before before) {
    if (node.behind) refuse("a lookbehind at the begin of a group or behind an assertion");
    must_match_ = must_match_ != node.negative;
    const Id ahead = write(node.children.front(), TextLanguages::kAnything, before);
    must_match_ = must_match_ != node.negative;
    return languages_.both({rest, node.negative ? languages_.inverse(ahead) : ahead});
  }

  // In some engines $ also matches before a final line end.
  Id end() {
    if (must_match_) return TextLanguages::kEmpty;
    return languages_.either({TextLanguages::kEmpty, languages_.one_of({{'\n', '\n'}})});
  }

  Id sequence(const RegexNode& node, Id rest, Before before) {
    std::vector<Before> places = {before};
    for (const RegexNode& part : node.children) places.push_back(behind(part, places.back()));
    for (size_t i = node.children.size(); i-- > 0;) {
      rest = is_look_behind(node.children[i]) ? look_behind(node.children, i, rest)
                                              : write(node.children[i], rest, places[i]);
    }
    return rest;
  }

  // A lookbehind constrains the parts before it, up to the nearest assertion. `i` becomes the index of the first of
  // them.
  Id look_behind(const std::vector<RegexNode>& parts, size_t& i, Id rest) {
    const size_t at = i;
    Id before = TextLanguages::kEmpty;
    for (; i > 0 && !has_assertion(parts[i - 1]); --i) before = write(parts[i - 1], before, Before::Unknown);
    const RegexNode& inside = parts[at].children.front();
    const RegexNode text{
        .kind = Kind::Sequence,
        .children = {parts.begin() + static_cast<ptrdiff_t>(i), parts.begin() + static_cast<ptrdiff_t>(at)}};
    const PatternLengths lengths = lengths_of(inside);
    if (has_assertion(inside) || lengths.most < 0 || lengths_of(text).least < lengths.most)
      refuse("a lookbehind that may look further back than to the parts before it");
    const bool inverse = parts[at].negative;
    must_match_ = must_match_ != inverse;
    const Id ends =
        languages_.sequence(TextLanguages::kAnything, write(inside, TextLanguages::kEmpty, Before::Unknown));
    must_match_ = must_match_ != inverse;
    return languages_.sequence(languages_.both({before, inverse ? languages_.inverse(ends) : ends}), rest);
  }

  Id boundary(Id rest, Before before) {
    if (!must_match_ || before == Before::Unknown) refuse("\\b where it depends on characters beyond ASCII");
    const bool word = before == Before::Word;
    const Id next = languages_.sequence(languages_.one_of(word ? ecma_other_characters() : ecma_word_characters()),
                                        TextLanguages::kAnything);
    return languages_.both({rest, word ? languages_.either({TextLanguages::kEmpty, next}) : next});
  }

  Id repeat(const RegexNode& node, Id rest, Before before) {
    const RegexNode& part = node.children.front();
    if (!has_assertion(part)) {
      const Id once = write(part, TextLanguages::kEmpty, Before::Unknown);
      return languages_.sequence(languages_.repeat(once, node.min, node.max), rest);
    }
    if (node.max < 0 || node.max > kMostUnrolled) return tempered(node, rest);
    const Before later = behind(part, before);
    Id all = rest;
    for (int64_t i = node.max; i > 0; --i) {
      all = write(part, all, i == 1 ? before : later);
      if (i > node.min) all = languages_.either({all, rest});
    }
    return all;
  }

  // ((?!word).)* up to the end of the text: the word does not occur.
  Id tempered(const RegexNode& node, Id rest) {
    const RegexNode& part = node.children.front();
    const bool fits = part.kind == Kind::Sequence && part.children.size() == 2 && part.children[0].kind == Kind::Look &&
                      part.children[0].negative && !part.children[0].behind && part.children[1].kind == Kind::Set &&
                      rest == TextLanguages::kEmpty && must_match_;
    if (!fits) refuse("an assertion inside of a repetition");
    must_match_ = false;
    const Id word = write(part.children[0].children.front(), TextLanguages::kAnything, Before::Unknown);
    must_match_ = true;
    if (languages_.has_empty(word)) refuse("a lookahead for nothing inside of a repetition");
    const Id somewhere = languages_.sequence(TextLanguages::kAnything, word);
    return languages_.both({languages_.repeat(languages_.one_of(part.children[1].set), node.min, node.max),
                            languages_.inverse(somewhere)});
  }

  TextLanguages& languages_;
  bool must_match_;
  size_t written_ = 0;
};

RegexNode parse_small(std::string_view regex, RegexReading reading) {
  RegexNode node = parse_regex(regex, RegexDialect::Ecma, reading);
  if (count_parts(node) > kMostAutomatonParts)
    fail(ErrorKind::Usage, "a pattern with lookaheads, or beside others, has more than {} parts", kMostAutomatonParts);
  return node;
}

Id partly(const RegexNode& node, bool must_match, TextLanguages& languages) {
  Translation translation(languages, must_match);
  const auto from = [&](Before before) { return translation.write(node, TextLanguages::kAnything, before); };
  const auto later = [&](const CodeSet& last, Before before) {
    return languages.sequence(TextLanguages::kAnything, languages.sequence(languages.one_of(last), from(before)));
  };
  if (any_part(node, is_word_border))
    return languages.either({from(Before::Begin), later(ecma_word_characters(), Before::Word),
                             later(ecma_other_characters(), Before::Other)});
  if (any_part(node, is_text_begin))
    return languages.either({from(Before::Begin), later(any_character(), Before::Other)});
  return languages.sequence(TextLanguages::kAnything, from(Before::Unknown));
}

}  // namespace

bool needs_automaton(const RegexNode& node) { return has_assertion(node); }

Id pattern_language(std::string_view regex, RegexUse use, TextLanguages& languages) {
  const RegexNode node = parse_small(regex, RegexReading::ForAll);
  if (use == RegexUse::Answer) return Translation(languages, true).write(node, TextLanguages::kEmpty, Before::Begin);
  return partly(node, true, languages);
}

Id avoided_language(std::string_view regex, TextLanguages& languages) {
  return languages.inverse(partly(parse_small(regex, RegexReading::ForAny), false, languages));
}

Id length_language(Lengths lengths, TextLanguages& languages) {
  return languages.repeat(languages.one_of(any_character()), lengths.least, lengths.most);
}

}  // namespace millrace
