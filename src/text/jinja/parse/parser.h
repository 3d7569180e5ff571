// Parses a template by Jinja's grammar.
#pragma once

#include <string_view>

#include "text/jinja/parse/ast.h"

namespace millrace::jinja {

// Throws a TemplateError with the line.
Template parse_template(std::string_view source);

}  // namespace millrace::jinja
