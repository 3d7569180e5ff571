#include <algorithm>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/builtin/methods.h"
#include "text/jinja/builtin/percent_format.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/html.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/split.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/tojson.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

// Keeps strings, with their safe mark, and converts other values to text.
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

// Filters that call the string method of the same name.
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

Value replace_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "replace", {"old", "new", "count?"});
  const bool all = !args.has(2) || args[2].is_none();
  const Integer count = all ? Integer(-1) : std::clamp<Integer>(args.integer(2), -1, Integer(1) << 40);
  const auto plain = [](const Value& value) {  // the result is never safe
    return TextBuilder().append_value(value).take_value();
  };
  return replace_text(plain(subject), to_text(args[0]), plain(args[1]), static_cast<int64_t>(count));
}

// Capitalizes words. A word starts behind white space, a dash or an opening bracket.
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
  const Value indention =
      width.is_string()
          ? width
          : Value::text(
                std::string(static_cast<size_t>(std::clamp<Integer>(width.as_integer(), 0, kMaxFormatWidth)), ' '), {});
  const bool blank = args.flag(2, false);
  TextBuilder out;
  if (args.flag(1, false)) out.append_value(indention);
  // The added newline makes an empty text one line and preserves a trailing newline.
  const Value text = TextBuilder().append_value(subject).append("\n").take_value();
  bool first = true;
  for (const std::string_view line : split_lines(text.str(), false)) {
    if (!first) {
      out.append("\n");
      if (blank || !line.empty()) out.append_value(indention);
    }
    first = false;
    out.append_piece(text, line);
  }
  return out.take_value(subject.is_markup());
}

Value escape_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "escape", {});
  return Value::string(escape_html(subject), true);
}

Value safe_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "safe", {});
  return TextBuilder().append_value(subject).take_value(/*markup=*/true);
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

Value tojson_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  return Value::string(to_json_text(subject, JsonStyle(arguments)));
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"capitalize", method_filter<kCapitalize>},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"lower", method_filter<kLower>},
      {"replace", replace_filter},
      {"safe", safe_filter},
      {"string", string_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"upper", method_filter<kUpper>},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace millrace::jinja
