// Global functions: range, dict, namespace, joiner, and Hugging Face's raise_exception and strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value/object.h"

namespace millrace::jinja {

std::optional<Value> find_global(std::string_view name);

}  // namespace millrace::jinja
