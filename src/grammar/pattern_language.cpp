#include "grammar/pattern_language.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/pattern_lengths.h"

namespace millrace {
namespace {

using Id = TextLanguages::Id;
using Kind = PatternNode::Kind;

constexpr size_t kMostAutomatonParts = 1000;
constexpr int64_t kMostUnrolled = 32;
constexpr size_t kMostWritten = 20000;  // parts, those of repetitions as often as they are repeated

bool any_part(const PatternNode& node, bool (*test)(const PatternNode&)) {
  return test(node) || std::any_of(node.parts.begin(), node.parts.end(),
                                   [&](const PatternNode& part) { return any_part(part, test); });
}

bool is_assertion(const PatternNode& node) { return node.kind >= Kind::Begin; }
bool has_assertion(const PatternNode& node) { return any_part(node, is_assertion); }

size_t count_parts(const PatternNode& node) {
  size_t count = 1;
  for (const PatternNode& part : node.parts) count += count_parts(part);
  return count;
}

// What the place behind the characters so far is like.
enum class Before : uint8_t { Begin, Word, Other, Unknown };

Before join(Before a, Before b) { return a == b ? a : Before::Unknown; }

Before behind(const PatternNode& node, Before before) {
  switch (node.kind) {
    case Kind::Characters:
      if (node.characters.without(word_characters()).empty()) return Before::Word;
      return node.characters.without(other_characters()).empty() ? Before::Other : Before::Unknown;
    case Kind::Sequence:
      for (const PatternNode& part : node.parts) before = behind(part, before);
      return before;
    case Kind::Choice: {
      Before all = behind(node.parts.front(), before);
      for (size_t i = 1; i < node.parts.size(); ++i) all = join(all, behind(node.parts[i], before));
      return all;
    }
    case Kind::Repeat: {
      if (node.most == 0) return before;
      // More often than once is the same: a part either sets the place, or keeps it, or may do both.
      const Before once = behind(node.parts.front(), before);
      return node.least == 0 ? join(once, before) : once;
    }
    default:
      return before;
  }
}

// From right to left: each part of the expression is said with all that may come behind it up to the end of the text.
class Translation {
 public:
  Translation(TextLanguages& languages, bool must_match) : languages_(languages), must_match_(must_match) {}

  Id write(const PatternNode& node, Id rest, Before before) {
    if (++written_ > kMostWritten) refuse("repetitions of assertions that multiply to very many");
    switch (node.kind) {
      case Kind::Empty:
        return rest;
      case Kind::Characters:
        return languages_.sequence(languages_.one_of(node.characters), rest);
      case Kind::Sequence:
        return sequence(node, rest, before);
      case Kind::Choice: {
        std::vector<Id> ways;
        for (const PatternNode& part : node.parts) ways.push_back(write(part, rest, before));
        return languages_.either(std::move(ways));
      }
      case Kind::Repeat:
        return repeat(node, rest, before);
      case Kind::Begin:
        if (before == Before::Unknown) refuse("^ where it may be at the begin or not");
        return before == Before::Begin ? rest : TextLanguages::kNothing;
      case Kind::End:
        return languages_.both({rest, end()});
      case Kind::Ahead:
        return languages_.both({rest, write(node.parts.front(), TextLanguages::kAnything, before)});
      case Kind::NotAhead: {
        must_match_ = !must_match_;
        const Id excluded = write(node.parts.front(), TextLanguages::kAnything, before);
        must_match_ = !must_match_;
        return languages_.both({rest, languages_.inverse(excluded)});
      }
      case Kind::Behind:
      case Kind::NotBehind:
        refuse("a lookbehind at the begin of a group or behind an assertion");
      case Kind::Boundary:
        return boundary(rest, before);
    }
    return TextLanguages::kNothing;
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    fail(ErrorKind::Usage, "the regular expression has {}, which cannot be enforced", what);
  }

  // For some engines the end is before a last line end, too.
  Id end() {
    if (must_match_) return TextLanguages::kEmpty;
    return languages_.either({TextLanguages::kEmpty, languages_.one_of({{'\n', '\n'}})});
  }

  Id sequence(const PatternNode& node, Id rest, Before before) {
    std::vector<Before> places = {before};
    for (const PatternNode& part : node.parts) places.push_back(behind(part, places.back()));
    for (size_t i = node.parts.size(); i-- > 0;) {
      const bool behind = node.parts[i].kind == Kind::Behind || node.parts[i].kind == Kind::NotBehind;
      rest = behind ? look_behind(node.parts, i, rest) : write(node.parts[i], rest, places[i]);
    }
    return rest;
  }

  // The parts before it, as far as they have no assertions, end so or not. `i` becomes the first of them.
  Id look_behind(const std::vector<PatternNode>& parts, size_t& i, Id rest) {
    const size_t at = i;
    Id before = TextLanguages::kEmpty;
    for (; i > 0 && !has_assertion(parts[i - 1]); --i) before = write(parts[i - 1], before, Before::Unknown);
    const PatternNode& inside = parts[at].parts.front();
    const PatternNode text{
        .kind = Kind::Sequence,
        .parts = {parts.begin() + static_cast<ptrdiff_t>(i), parts.begin() + static_cast<ptrdiff_t>(at)}};
    const PatternLengths lengths = lengths_of(inside);
    if (has_assertion(inside) || lengths.most < 0 || lengths_of(text).least < lengths.most)
      refuse("a lookbehind that may look further back than to the parts before it");
    const bool inverse = parts[at].kind == Kind::NotBehind;
    must_match_ = must_match_ != inverse;
    const Id ends =
        languages_.sequence(TextLanguages::kAnything, write(inside, TextLanguages::kEmpty, Before::Unknown));
    must_match_ = must_match_ != inverse;
    return languages_.sequence(languages_.both({before, inverse ? languages_.inverse(ends) : ends}), rest);
  }

  Id boundary(Id rest, Before before) {
    if (!must_match_ || before == Before::Unknown) refuse("\\b where it depends on characters beyond ASCII");
    const bool word = before == Before::Word;
    const Id next =
        languages_.sequence(languages_.one_of(word ? other_characters() : word_characters()), TextLanguages::kAnything);
    return languages_.both({rest, word ? languages_.either({TextLanguages::kEmpty, next}) : next});
  }

  Id repeat(const PatternNode& node, Id rest, Before before) {
    const PatternNode& part = node.parts.front();
    if (!has_assertion(part)) {
      const Id once = write(part, TextLanguages::kEmpty, Before::Unknown);
      return languages_.sequence(languages_.repeat(once, node.least, node.most), rest);
    }
    if (node.most < 0 || node.most > kMostUnrolled) return tempered(node, rest);
    const Before later = behind(part, before);
    Id all = rest;
    for (int64_t i = node.most; i > 0; --i) {
      all = write(part, all, i == 1 ? before : later);
      if (i > node.least) all = languages_.either({all, rest});
    }
    return all;
  }

  // ((?!word).)* up to the end: the word is nowhere.
  Id tempered(const PatternNode& node, Id rest) {
    const PatternNode& part = node.parts.front();
    const bool fits = part.kind == Kind::Sequence && part.parts.size() == 2 && part.parts[0].kind == Kind::NotAhead &&
                      part.parts[1].kind == Kind::Characters && rest == TextLanguages::kEmpty && must_match_;
    if (!fits) refuse("an assertion inside of a repetition");
    must_match_ = false;
    const Id word = write(part.parts[0].parts.front(), TextLanguages::kAnything, Before::Unknown);
    must_match_ = true;
    if (languages_.has_empty(word)) refuse("a lookahead for nothing inside of a repetition");
    const Id somewhere = languages_.sequence(TextLanguages::kAnything, word);
    return languages_.both({languages_.repeat(languages_.one_of(part.parts[1].characters), node.least, node.most),
                            languages_.inverse(somewhere)});
  }

  TextLanguages& languages_;
  bool must_match_;
  size_t written_ = 0;
};

PatternNode parse_small(std::string_view regex, Reading reading) {
  PatternNode node = parse_pattern(regex, reading);
  if (count_parts(node) > kMostAutomatonParts)
    fail(ErrorKind::Usage, "a pattern with lookaheads, or beside others, has more than {} parts", kMostAutomatonParts);
  return node;
}

Id partly(const PatternNode& node, bool must_match, TextLanguages& languages) {
  Translation translation(languages, must_match);
  const auto from = [&](Before before) { return translation.write(node, TextLanguages::kAnything, before); };
  const auto later = [&](const CodeSet& last, Before before) {
    return languages.sequence(TextLanguages::kAnything, languages.sequence(languages.one_of(last), from(before)));
  };
  if (any_part(node, [](const PatternNode& one) { return one.kind == Kind::Boundary; }))
    return languages.either(
        {from(Before::Begin), later(word_characters(), Before::Word), later(other_characters(), Before::Other)});
  if (any_part(node, [](const PatternNode& one) { return one.kind == Kind::Begin; }))
    return languages.either({from(Before::Begin), later(any_character(), Before::Other)});
  return languages.sequence(TextLanguages::kAnything, from(Before::Unknown));
}

}  // namespace

bool needs_automaton(const PatternNode& node) { return has_assertion(node); }

Id pattern_language(std::string_view regex, RegexUse use, TextLanguages& languages) {
  const PatternNode node = parse_small(regex, Reading::ForAll);
  if (use == RegexUse::Answer) return Translation(languages, true).write(node, TextLanguages::kEmpty, Before::Begin);
  return partly(node, true, languages);
}

Id avoided_language(std::string_view regex, TextLanguages& languages) {
  return languages.inverse(partly(parse_small(regex, Reading::ForAny), false, languages));
}

Id length_language(Lengths lengths, TextLanguages& languages) {
  return languages.repeat(languages.one_of(any_character()), lengths.least, lengths.most);
}

}  // namespace millrace
