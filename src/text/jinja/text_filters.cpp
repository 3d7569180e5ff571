#include <algorithm>
#include <unordered_map>

#include "base/ascii.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/html.h"
#include "text/jinja/methods.h"
#include "text/jinja/percent_format.h"
#include "text/jinja/pretty_print.h"
#include "text/jinja/repr.h"
#include "text/jinja/split.h"
#include "text/jinja/template_error.h"
#include "text/jinja/text_builder.h"
#include "text/jinja/tojson.h"
#include "text/jinja/unicode.h"
#include "text/jinja/word_wrap.h"

namespace millrace::jinja {
namespace {

// A string stays what it is, marked safe or not; anything else becomes its text.
Value soft_text(const Value& value) { return value.is_string() ? value : Value::string(to_text(value)); }

const std::string& require_text(const Value& value, std::string_view filter) {
  require_defined(value);
  if (!value.is_string()) fail_template("the filter '{}' needs a string, not '{}'", filter, value.type_name());
  return value.str();
}

Value string_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "string", {});
  return soft_text(subject);
}

// Filters that are the string method of the same name.
template <const char* Name>
Value method_filter(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, Name, {});
  return find_string_method(Name)(interpreter, soft_text(subject), Arguments());
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize";

Value trim_filter(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "trim", {"chars?"});
  return find_string_method("strip")(interpreter, soft_text(subject), {{args.value_or_none(0)}, {}});
}

Value center_filter(Interpreter& interpreter, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "center", {"width?"});
  const Value width = args.has(0) ? args[0] : Value::integer(80);
  return find_string_method("center")(interpreter, soft_text(subject), {{width}, {}});
}

Value replace_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "replace", {"old", "new", "count?"});
  const bool all = !args.has(2) || args[2].is_none();
  const Integer count = all ? Integer(-1) : std::clamp<Integer>(args.integer(2), -1, Integer(1) << 40);
  return Value::string(replace_text(to_text(subject), to_text(args[0]), to_text(args[1]), static_cast<int64_t>(count)));
}

// Words start large; a word starts behind white space, a dash or an opening bracket.
Value title_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "title", {});
  const Value value = soft_text(subject);
  const std::string_view text = value.str();
  const auto separates = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const bool separator = separates(next_code_point(text, at));
    const size_t first_end = at;
    while (at < text.size()) {
      size_t next = at;
      if (separates(next_code_point(text, next)) != separator) break;
      at = next;
    }
    out.append(to_upper(text.substr(start, first_end - start)))
        .append(to_lower(text.substr(first_end, at - first_end)));
  }
  return Value::string(out.take(), value.is_markup());
}

Value indent_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "indent", {"width?", "first?", "blank?"});
  require_text(subject, "indent");
  const Value width = args.has(0) ? args[0] : Value::integer(4);
  if (!width.is_string() && !width.is_int_like()) fail_template("indent() needs a width or a string");
  const std::string indention =
      width.is_string()
          ? width.str()
          : std::string(static_cast<size_t>(std::clamp<Integer>(width.as_integer(), 0, kMaxFormatWidth)), ' ');
  const bool blank = args.flag(2, false);
  TextBuilder out;
  if (args.flag(1, false)) out.append(indention);
  // The added newline makes an empty text one line, and keeps a line that the text ends with.
  const std::string text = subject.str() + "\n";
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!first) {
      out.append("\n");
      if (blank || !line.empty()) out.append(indention);
    }
    first = false;
    out.append(line);
  }
  return Value::string(out.take(), subject.is_markup());
}

Value truncate_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "truncate", {"length?", "killwords?", "end?", "leeway?"});
  const Integer length = args.integer(0, 255);
  const std::string end = args.has(2) ? args.text(2) : "...";
  const auto end_length = static_cast<Integer>(count_code_points(end));
  const Integer leeway = args.has(3) && !args[3].is_none() ? args.integer(3) : Integer(5);
  if (length < end_length) fail_template("truncate: expected length >= {}", static_cast<int64_t>(end_length));
  if (leeway < 0) fail_template("truncate: expected leeway >= 0");
  if (subject.is_undefined()) return subject;
  const std::string_view text = require_text(subject, "truncate");
  if (static_cast<Integer>(subject.text().length) - leeway <= length) return subject;
  std::string_view kept = text.substr(0, code_point_offset(text, static_cast<size_t>(length - end_length)));
  if (!args.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return Value::string(TextBuilder().append(kept).append(end).take(), subject.is_markup());
}

Value wordwrap_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "wordwrap", {"width?", "break_long_words?", "wrapstring?", "break_on_hyphens?"});
  const std::string joint = args.has(2) && !args[2].is_none() ? args.text(2) : "\n";
  const WrapOptions options{
      .width = args.integer(0, 79), .break_long_words = args.flag(1, true), .break_on_hyphens = args.flag(3, true)};
  TextBuilder out;
  bool first = true;
  for (const std::string_view line : split_lines(require_text(subject, "wordwrap"), false)) {
    if (!first) out.append(joint);
    first = false;
    const std::vector<std::string> wrapped = wrap_line(line, options);
    for (size_t i = 0; i < wrapped.size(); ++i) out.append(i > 0 ? joint : "").append(wrapped[i]);
  }
  return Value::string(out.take());
}

Value wordcount_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "wordcount", {});
  const std::string text = to_text(subject);
  Integer words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_word = c == '_' || is_alnum(c);
    words += is_word && !inside;
    inside = is_word;
  }
  return Value::integer(words);
}

Value escape_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "escape", {});
  return Value::string(escape_html(subject), true);
}

Value forceescape_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "forceescape", {});
  return Value::string(escape_html_text(to_text(subject)), true);
}

Value safe_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "safe", {});
  return Value::string(to_text(subject), true);
}

Value striptags_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "striptags", {});
  return Value::string(strip_tags(to_text(subject)));
}

Value format_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail_template("format: can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) return percent_format(soft_text(subject), Value::tuple(arguments.positional));
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) dict->set(Value::string(name), value);
  return percent_format(soft_text(subject), Value::dict(dict));
}

std::string quote_url(std::string_view text, bool for_query) {
  TextBuilder out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = is_ascii_alnum(c) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    out.append(plain ? std::string(1, c) : c == ' ' && for_query ? std::string("+") : fmt::format("%{:02X}", byte));
  }
  return out.take();
}

Value urlencode_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "urlencode", {});
  if (subject.is_string() || !is_iterable(subject)) return Value::string(quote_url(to_text(subject), false));
  TextBuilder out;
  const auto add = [&](const Value& key, const Value& value) {
    if (out.size() > 0) out.append("&");
    out.append(quote_url(to_text(key), true)).append("=").append(quote_url(to_text(value), true));
  };
  if (subject.is_dict()) {
    for (const auto& [key, value] : subject.as_dict().entries()) add(key, value);
    return Value::string(out.take());
  }
  const IteratorPtr pairs = iterate(subject);
  while (const std::optional<Value> pair = pairs->next()) {
    const std::vector<Value> items = to_vector(*pair);
    if (items.size() != 2) fail_template("urlencode needs pairs of a key and a value");
    add(items[0], items[1]);
  }
  return Value::string(out.take());
}

Value xmlattr_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "xmlattr", {"autospace?"});
  require_defined(subject);
  if (!subject.is_dict()) fail_template("xmlattr needs a dict, not '{}'", subject.type_name());
  TextBuilder out;
  for (const auto& [key, value] : subject.as_dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail_template("xmlattr needs names that are strings");
    if (key.str().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail_template("Invalid character in attribute name: {}", repr(key));
    }
    if (args.flag(0, true) || out.size() > 0) out.append(" ");
    out.append(escape_html(key)).append("=\"").append(escape_html(value)).append("\"");
  }
  return Value::string(out.take());
}

Value tojson_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  return Value::string(to_json_text(subject, JsonStyle(arguments)));
}

Value pprint_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "pprint", {});
  return Value::string(pretty_print(subject));
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"capitalize", method_filter<kCapitalize>},
      {"center", center_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"forceescape", forceescape_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"lower", method_filter<kLower>},
      {"pprint", pprint_filter},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"string", string_filter},
      {"striptags", striptags_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"truncate", truncate_filter},
      {"upper", method_filter<kUpper>},
      {"urlencode", urlencode_filter},
      {"wordcount", wordcount_filter},
      {"wordwrap", wordwrap_filter},
      {"xmlattr", xmlattr_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace millrace::jinja
