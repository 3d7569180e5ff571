// HTML escaping, and the marked-safe strings that it leaves alone.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace millrace::jinja {

std::string escape_html_text(std::string_view text);
// The value as text, escaped unless it is marked safe.
std::string escape_html(const Value& value);
// Tags and comments removed, white space collapsed, character references resolved.
std::string strip_tags(std::string_view text);

}  // namespace millrace::jinja
