#include "text/jinja/builtin/brace_format.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/html.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class BraceFormatter {
 public:
  BraceFormatter(const Value& format, const Arguments& arguments)
      : whole_(format), markup_(format.is_markup()), arguments_(arguments), content_(has_content(arguments)) {}

  Value run() {
    TextBuilder out;
    // A format from the conversation has no markup of its own: all of the result is content.
    const bool content = has_content(whole_);
    format_to(out, whole_.str(), 2, content);
    return out.take_value(markup_);
  }

 private:
  // `levels`: remaining levels of nested formats. `content`: the format is.
  void format_to(TextBuilder& out, std::string_view format, int levels, bool content) {
    if (levels < 0) fail_template("Max string recursion exceeded");
    for (size_t at = 0; at < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      out.append_content(format.substr(at, brace - at), content);
      if (brace == format.size()) break;
      if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
        out.append_content(format.substr(brace, 1), content);
        at = brace + 2;
        continue;
      }
      if (format[brace] == '}') fail_template("Single '}}' encountered in format string");
      const size_t end = field_end(format, brace + 1);
      out.append_content(field(format.substr(brace + 1, end - brace - 1), levels), content_ || content);
      at = end + 1;
    }
  }

  static size_t field_end(std::string_view format, size_t at) {
    int open = 1;
    bool in_index = false;
    for (; at < format.size(); ++at) {
      if (format[at] == '[') in_index = true;
      if (format[at] == ']') in_index = false;
      if (in_index) continue;
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    fail_template("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int levels) {
    // An index may contain any character, so look for conversion and spec behind its bracket.
    size_t name_end = 0;
    for (bool in_index = false; name_end < text.size(); ++name_end) {
      const char c = text[name_end];
      if (c == '[') in_index = true;
      if (c == ']') in_index = false;
      if (!in_index && (c == '!' || c == ':')) break;
    }
    Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2) fail_template("end of string while looking for conversion specifier");
      value = convert(value, rest[1]);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail_template("expected ':' after conversion specifier");
    }
    TextBuilder spec_text;
    if (!rest.empty()) format_to(spec_text, rest.substr(1), levels - 1, /*content=*/false);
    const std::string spec = spec_text.take();
    if (!markup_) return format_value(value, spec);
    if (!value.is_markup()) return escape_html_text(format_value(value, spec));
    if (!spec.empty()) fail_template("Unsupported format specification for Markup.");
    return value.str();
  }

  static Value convert(const Value& value, char conversion) {
    if (conversion == 's') return Value::string(to_text(value));
    if (conversion == 'r') return Value::string(repr(value));
    if (conversion == 'a') return Value::string(value.is_string() ? repr_text(value.str(), true) : repr(value));
    fail_template("Unknown conversion specifier '{}' in a format", conversion);
  }

  Value lookup(std::string_view name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, at));
    while (at < name.size()) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) fail_template("Empty attribute in format string");
        value = get_attribute(value, name.substr(at + 1, end - at - 1));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at);
        if (end == std::string_view::npos) fail_template("Missing ']' in format string");
        const std::string_view key = name.substr(at + 1, end - at - 1);
        if (key.empty()) fail_template("Empty attribute in format string");
        value = get_item(value, is_number(key) ? Value::integer(index_of(key)) : Value::string(std::string(key)));
        at = end + 1;
      } else {
        fail_template("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static Integer index_of(std::string_view digits) {
    if (digits.size() > 9) fail_template("Too many decimal digits in format string");
    Integer value = 0;
    for (char c : digits) value = value * 10 + (c - '0');
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const Numbering wanted = name.empty() ? Numbering::Automatic : Numbering::Manual;
      if (numbering_ == Numbering::Undecided) numbering_ = wanted;
      if (numbering_ != wanted) fail_template("cannot mix automatic and manual field numbering in a format");
      const Integer index = name.empty() ? next_++ : index_of(name);
      if (index >= static_cast<Integer>(arguments_.positional.size())) {
        fail_template("Replacement index {} out of range for positional args tuple", static_cast<int64_t>(index));
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    const Value* value = arguments_.find_named(name);
    if (!value) fail_template("the format's field {} is not there", in_quotes(name));
    return *value;
  }

  enum class Numbering { Undecided, Automatic, Manual };

  const Value& whole_;
  const bool markup_;
  const Arguments& arguments_;
  const bool content_;  // of the arguments
  Numbering numbering_ = Numbering::Undecided;
  Integer next_ = 0;
};

}  // namespace

Value brace_format(const Value& format, const Arguments& arguments) { return BraceFormatter(format, arguments).run(); }

}  // namespace millrace::jinja
