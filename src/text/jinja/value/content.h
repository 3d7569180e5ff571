// Which bytes of a text come from the conversation. Only markup of the template itself may become special tokens, so a
// render tracks the bytes of messages, tools and other input through all operations on strings.
//
// Operations that cut and join texts keep exact ranges. A text of any other operation (tojson, upper, ...) has no
// ranges at first; settle_content() then marks all of it, if an input of the operation has content.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value/value.h"

namespace millrace::jinja {

bool has_content(const Value& value);  // also inside of containers; objects count as content
bool has_content(const Arguments& arguments);

// `part` is a view into the string; the result keeps its ranges and its safe mark.
Value piece_of(const Value& text, std::string_view part);

// The result of an operation, with ranges. `from_content`: an input has content.
Value settle_content(Value result, bool from_content);

// Appends the ranges of `content` that lie in [begin, end), moved to `at`.
void append_ranges(const ContentRanges& content, size_t begin, size_t end, size_t at, ContentRanges& to);

}  // namespace millrace::jinja
