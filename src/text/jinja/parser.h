// From tokens to the tree, by Jinja's own grammar.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace millrace::jinja {

// Fails with a TemplateError that has a line.
Template parse_template(std::string_view source);

}  // namespace millrace::jinja
