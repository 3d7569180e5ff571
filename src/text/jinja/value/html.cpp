#include "text/jinja/value/html.h"

#include <algorithm>

#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
std::string escape_html_text(std::string_view text) {
  TextBuilder out;
  for (size_t at = 0; at < text.size();) {
    const size_t special = std::min(text.find_first_of("&<>\"'", at), text.size());
    out.append(text.substr(at, special - at));
    if (special == text.size()) break;
    const char c = text[special];
    out.append(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : "&#39;");
    at = special + 1;
  }
  return out.take();
}

std::string escape_html(const Value& value) {
  return value.is_markup() ? value.str() : escape_html_text(to_text(value));
}

}  // namespace millrace::jinja
