#include <algorithm>
#include <limits>
#include <unordered_map>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/builtin/brace_format.h"
#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/builtin/methods.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/html.h"
#include "text/jinja/value/split.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

// Copies the safe mark of `self`.
Value like(const Value& self, std::string text) { return Value::string(std::move(text), self.is_markup()); }

Value list_like(const Value& self, const std::vector<std::string_view>& pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(piece_of(self, piece));
  return Value::list(std::move(items));
}

template <std::string (*Map)(std::string_view)>
Value mapped(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "str method", {});
  Budget::spend(static_cast<int64_t>(self.str().size() / 16));
  std::string text = Map(self.str());
  // Case mappings of ASCII keep the place of every byte.
  if (self.text().ascii() && self.text().content)
    return Value::text(std::move(text), *self.text().content, self.is_markup());
  return like(self, std::move(text));
}

enum Side { kLeft = 1, kRight = 2, kBoth = 3 };

template <int Sides>
Value strip_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "strip", {"chars?", "/"});
  if (args.has(0) && !args[0].is_none())
    return piece_of(self, strip_characters(self.str(), args.text(0), Sides & kLeft, Sides & kRight));
  std::string_view text = self.str();
  if (Sides & kLeft) text = strip_left(text);
  if (Sides & kRight) text = strip_right(text);
  return piece_of(self, text);
}

int64_t clamped(Integer value) {
  constexpr Integer kLimit = std::numeric_limits<int64_t>::max() / 4;
  return static_cast<int64_t>(std::clamp(value, -kLimit, kLimit));
}

template <bool FromRight>
Value split_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "split", {"sep?", "maxsplit?"});
  const int64_t limit = clamped(args.integer(1, -1));
  if (!args.has(0) || args[0].is_none()) {
    return list_like(self, FromRight ? split_spaces_from_right(self.str(), limit) : split_spaces(self.str(), limit));
  }
  const std::string& separator = args.text(0);
  if (separator.empty()) fail_template("empty separator");
  return list_like(
      self, FromRight ? split_text_from_right(self.str(), separator, limit) : split_text(self.str(), separator, limit));
}

Value splitlines_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "splitlines", {"keepends?"});
  return list_like(self, split_lines(self.str(), args.flag(0, false)));
}

template <bool FromRight>
Value partition_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "partition", {"sep", "/"});
  const std::string &text = self.str(), &separator = args.text(0);
  if (separator.empty()) fail_template("empty separator");
  const size_t at = FromRight ? find_last_text(text, separator) : find_text(text, separator);
  const auto piece = [&](size_t start, size_t size) {
    return piece_of(self, std::string_view(text).substr(start, size));
  };
  if (at == std::string::npos) {
    const Value empty = like(self, "");
    return FromRight ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  }
  return Value::tuple({piece(0, at), piece(at, separator.size()), piece(at + separator.size(), text.size())});
}

Value join_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "join", {"iterable", "/"});
  TextBuilder out;
  bool first = true;
  const IteratorPtr iterator = iterate(args[0]);
  for (size_t i = 0; const std::optional<Value> item = iterator->next(); ++i) {
    if (!first) out.append_value(self);
    first = false;
    if (!self.is_markup() && !item->is_string()) {
      fail_template("sequence item {}: expected str instance, {} found", i, item->type_name());
    }
    self.is_markup() ? out.append_content(escape_html(*item), has_content(*item)) : out.append_value(*item);
  }
  return out.take_value(self.is_markup());
}

Value replace_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "replace", {"old", "new", "count?", "/"});
  args.text(1);  // fails for other types
  const Value to =
      self.is_markup() ? settle_content(Value::string(escape_html(args[1])), has_content(args[1])) : args[1];
  return replace_text(self, args.text(0), to, clamped(args.integer(2, -1)));
}

// The range of the text given by two optional arguments, in code points, with the rules of slices.
struct Window {
  Window(const Value& self, const BoundArguments& args, size_t first) {
    const Text& whole = self.text();
    const SliceRange range =
        resolve_slice(whole.length, args.value_or_none(first), args.value_or_none(first + 1), Value());
    // Unlike a slice, a range that starts behind the end does not even contain the empty string.
    outside =
        args.has(first) && args[first].is_int_like() && args[first].as_integer() > static_cast<Integer>(whole.length);
    outside |= range.start > range.stop;
    begin = code_point_offset(whole.bytes, static_cast<size_t>(range.start));
    const size_t end = code_point_offset(whole.bytes, static_cast<size_t>(std::max(range.start, range.stop)));
    text = std::string_view(whole.bytes).substr(begin, end - begin);
    index = range.start;
  }
  bool outside;
  size_t begin;   // in bytes
  int64_t index;  // in code points
  std::string_view text;
};

template <bool FromRight, bool MustExist>
Value find_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "find", {"sub", "start?", "end?", "/"});
  const Window window(self, args, 1);
  const std::string& wanted = args.text(0);
  const size_t at = window.outside ? std::string::npos
                    : FromRight    ? find_last_text(window.text, wanted)
                                   : find_text(window.text, wanted);
  if (at == std::string::npos) {
    if (MustExist) fail_template("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(window.index + static_cast<int64_t>(count_code_points(window.text.substr(0, at))));
}

Value count_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "count", {"sub", "start?", "end?", "/"});
  const Window window(self, args, 1);
  const std::string& wanted = args.text(0);
  if (window.outside) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<Integer>(count_code_points(window.text)) + 1);
  Integer count = 0;
  for (size_t at = 0; (at = find_text(window.text, wanted, at)) != std::string::npos; at += wanted.size()) ++count;
  return Value::integer(count);
}

template <bool AtEnd>
Value starts_or_ends_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, AtEnd ? "endswith" : "startswith", {"prefix", "start?", "end?", "/"});
  const Window window(self, args, 1);
  const auto matches = [&](const Value& wanted) {
    if (!wanted.is_string()) {
      fail_template("{} first arg must be str or a tuple of str, not {}", AtEnd ? "endswith" : "startswith",
                    wanted.type_name());
    }
    return !window.outside && (AtEnd ? window.text.ends_with(wanted.str()) : window.text.starts_with(wanted.str()));
  };
  if (!args[0].is_tuple()) return Value::boolean(matches(args[0]));
  const auto& choices = args[0].items();
  return Value::boolean(std::any_of(choices.begin(), choices.end(), matches));
}

template <bool AtEnd>
Value remove_affix_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, AtEnd ? "removesuffix" : "removeprefix", {"affix", "/"});
  std::string_view text = self.str();
  const std::string& affix = args.text(0);
  if (AtEnd && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!AtEnd && text.starts_with(affix)) text.remove_prefix(affix.size());
  return piece_of(self, text);
}

template <char Align>
Value justify_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "justify", {"width", "fillchar?", "/"});
  const std::string fill = args.has(1) ? args.text(1) : " ";
  if (count_code_points(fill) != 1) fail_template("The fill character must be exactly one character long");
  const int64_t width = clamped(args.integer(0)), length = static_cast<int64_t>(self.text().length);
  if (Align != '^' || width <= length) return like(self, pad(self.str(), width, Align, fill));
  // Python puts the odd fill character left or right, depending on the parity of the width.
  const int64_t missing = width - length, left = missing / 2 + (missing & width & 1);
  return like(self, pad(pad(self.str(), length + left, '>', fill), width, '<', fill));
}

Value zfill_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "zfill", {"width", "/"});
  std::string_view digits = self.str();
  std::string sign;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    sign = digits[0];
    digits.remove_prefix(1);
  }
  return like(self, sign + pad(digits, clamped(args.integer(0)) - static_cast<int64_t>(sign.size()), '>', "0"));
}

Value expandtabs_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "expandtabs", {"tabsize?"});
  const int64_t size = clamped(args.integer(0, 8));
  TextBuilder out;
  int64_t column = 0;
  const std::string& text = self.str();
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), " ");
      column += spaces;
      continue;
    }
    out.append(std::string_view(text).substr(start, at - start));
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return like(self, out.take());
}

template <bool (*Is)(char32_t), bool OfEmpty>
Value all_are(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "str method", {});
  const std::string& text = self.str();
  for (size_t at = 0; at < text.size();) {
    if (!Is(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(OfEmpty || !text.empty());
}

// isupper and islower: at least one cased character, none of the wrong case.
template <bool (*Is)(char32_t), bool (*IsNot)(char32_t)>
Value case_is(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "str method", {});
  return Value::boolean(has_case(self.str(), Is, IsNot));
}

Value istitle_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "istitle", {});
  bool inside_word = false, any = false;
  for (size_t at = 0; at < self.str().size();) {
    const char32_t c = next_code_point(self.str(), at);
    const bool large = is_upper(c) || is_title(c), small = is_lower(c);
    if ((large && inside_word) || (small && !inside_word)) return Value::boolean(false);
    inside_word = large || small;
    any |= inside_word;
  }
  return Value::boolean(any);
}

Value isidentifier_method(Interpreter&, const Value& self, const Arguments&) {
  return Value::boolean(is_identifier(self.str()));
}

bool is_ascii(char32_t c) { return c < 0x80; }

Value format_method(Interpreter&, const Value& self, const Arguments& arguments) {
  return brace_format(self, arguments);
}

Value format_map_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "format_map", {"mapping", "/"});
  if (!args[0].is_dict()) fail_template("format_map() needs a dict, but '{}' was given", args[0].type_name());
  Arguments named;
  for (const auto& [key, value] : args[0].as_dict().entries()) {
    if (key.is_string()) named.named.emplace_back(key.str(), value);
  }
  return brace_format(self, named);
}

Value bytes_method(Interpreter&, const Value&, const Arguments&) {
  fail_template("bytes are not supported: encode() cannot be called");
}

Value translate_method(Interpreter&, const Value&, const Arguments&) { fail_template("translate() is not supported"); }

}  // namespace

Method find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"capitalize", mapped<to_capitalized>},
      {"casefold", mapped<to_case_folded>},
      {"center", justify_method<'^'>},
      {"count", count_method},
      {"encode", bytes_method},
      {"endswith", starts_or_ends_method<true>},
      {"expandtabs", expandtabs_method},
      {"find", find_method<false, false>},
      {"format", format_method},
      {"format_map", format_map_method},
      {"index", find_method<false, true>},
      {"isalnum", all_are<is_alnum, false>},
      {"isalpha", all_are<is_alpha, false>},
      {"isascii", all_are<is_ascii, true>},
      {"isdecimal", all_are<is_decimal, false>},
      {"isdigit", all_are<is_digit, false>},
      {"isidentifier", isidentifier_method},
      {"islower", case_is<is_lower, is_upper>},
      {"isnumeric", all_are<is_numeric, false>},
      {"isprintable", all_are<is_printable, true>},
      {"isspace", all_are<is_space, false>},
      {"istitle", istitle_method},
      {"isupper", case_is<is_upper, is_lower>},
      {"join", join_method},
      {"ljust", justify_method<'<'>},
      {"lower", mapped<to_lower>},
      {"lstrip", strip_method<kLeft>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_affix_method<false>},
      {"removesuffix", remove_affix_method<true>},
      {"replace", replace_method},
      {"rfind", find_method<true, false>},
      {"rindex", find_method<true, true>},
      {"rjust", justify_method<'>'>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<kRight>},
      {"split", split_method<false>},
      {"splitlines", splitlines_method},
      {"startswith", starts_or_ends_method<false>},
      {"strip", strip_method<kBoth>},
      {"swapcase", mapped<to_swapped_case>},
      {"title", mapped<to_title>},
      {"translate", translate_method},
      {"upper", mapped<to_upper>},
      {"zfill", zfill_method},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace millrace::jinja
