// Checks that Jinja makes at compile time: unknown filters and tests, break and continue outside of a loop, two blocks
// with one name.
#pragma once

#include "text/jinja/parse/ast.h"

namespace millrace::jinja {

void check_template(const Template& parsed);

}  // namespace millrace::jinja
