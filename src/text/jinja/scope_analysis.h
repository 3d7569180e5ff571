// Jinja binds names before a template runs. This pass works out, scope by scope, which names that leaves undefined
// until they are assigned, and which loops and macros use their special variables.
#pragma once

#include "text/jinja/ast.h"

namespace millrace::jinja {

void analyze_scopes(Template& parsed);

}  // namespace millrace::jinja
