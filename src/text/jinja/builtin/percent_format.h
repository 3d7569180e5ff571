// Python's printf-style formatting: "%s is %5.2f" % (name, value).
#pragma once

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// `arguments` is a tuple, a dict for "%(name)s", or a single argument.
Value percent_format(const Value& format, const Value& arguments);

}  // namespace millrace::jinja
