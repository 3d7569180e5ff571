// Jinja binds names at compile time. This pass finds, for each scope, the names that are undefined until their
// assignment, and the loops and macros that use their special variables.
#pragma once

#include "text/jinja/parse/ast.h"

namespace millrace::jinja {

void analyze_scopes(Template& parsed);

}  // namespace millrace::jinja
