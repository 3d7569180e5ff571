// The Host field of a request (RFC 9112 3.2, RFC 3986 3.2.2).
#pragma once

#include <string_view>

namespace millrace {

// Whether `value` is a host with or without a port: a name, an IPv4 address, or an IP literal in brackets. An empty one
// is valid: clients send it where the target has no authority.
bool is_host_field(std::string_view value);

}  // namespace millrace
