// HTML escaping. Strings that are marked safe stay unescaped.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

std::string escape_html_text(std::string_view text);
// The value as text; escaped unless marked safe.
std::string escape_html(const Value& value);

}  // namespace millrace::jinja
