// Equality, order, membership and hashes with Python's rules.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

bool equals(const Value& a, const Value& b);
// a < b. Fails if Python does not order the types.
bool less(const Value& a, const Value& b);
bool less_or_equal(const Value& a, const Value& b);
// item in container
bool contains(const Value& container, const Value& item);

// Equal values have equal hashes; fails for lists and dicts.
size_t hash_of(const Value& value);
size_t hash_of(std::string_view text);

}  // namespace millrace::jinja
