// What Jinja refuses in a template before it runs: filters and tests that do not exist, jumps outside of a loop, two
// blocks of one name.
#pragma once

#include "text/jinja/ast.h"

namespace millrace::jinja {

void check_template(const Template& parsed);

}  // namespace millrace::jinja
