// URL helpers on top of libcurl's parser.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// scheme://host:port. Secrets are sent to one origin only. Throws Usage if the text is not an http(s) URL.
std::string url_origin(const std::string& url);

// Resolves a link relative to the page at `base`. Returns absolute links unchanged.
std::string join_url(const std::string& base, const std::string& link);

// The URL without user, password, query and fragment, for messages.
std::string printable_url(const std::string& url);

// Returns the URL without user and password and stores them, decoded, as "user:password".
std::string strip_userinfo(const std::string& url, std::string& user_and_password);

// Escapes a relative path for a URL and keeps its slashes.
std::string escape_path(std::string_view path);

}  // namespace millrace
