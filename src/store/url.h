// The few things the store does with URLs; libcurl parses them.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// scheme://host:port, the border that secrets do not cross. Throws Usage where the text is no http(s) URL.
std::string url_origin(const std::string& url);

// What a link on the page at `base` means; absolute links are returned as they are.
std::string join_url(const std::string& base, const std::string& link);

// Without user, password, query and fragment: fit to be shown to a person.
std::string printable_url(const std::string& url);

// The same URL without its user and password, which go to `user_and_password` as "user:password" (decoded).
std::string strip_userinfo(const std::string& url, std::string& user_and_password);

// Escapes a relative path for use in a URL; slashes stay.
std::string escape_path(std::string_view path);

}  // namespace millrace
