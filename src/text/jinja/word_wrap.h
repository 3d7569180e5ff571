// Lines of limited width, broken where Python's textwrap breaks them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace millrace::jinja {

struct WrapOptions {
  Integer width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

std::vector<std::string> wrap_line(std::string_view text, const WrapOptions& options);

}  // namespace millrace::jinja
