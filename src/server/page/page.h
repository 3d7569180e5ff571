// The page that the server shows to people: files of assets/, built into the binary.
#pragma once

#include <string_view>

namespace millrace {

struct PageAsset {
  std::string_view path;  // as it is asked for: "/", "/page/style.css"
  std::string_view content_type, body;
  std::string_view etag;  // with its quotes
};

// Null: the page has no such file.
const PageAsset* find_page_asset(std::string_view path);

// Content-Security-Policy of all of them: nothing from elsewhere, nothing inline, so that whatever a model writes
// cannot become a script, a style or a request.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace millrace
