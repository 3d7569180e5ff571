// The web page: the files of assets/, embedded in the binary.
#pragma once

#include <string_view>

namespace millrace {

struct PageAsset {
  std::string_view path;  // request path: "/", "/page/style.css"
  std::string_view content_type, body;
  std::string_view etag;  // including quotes
};

// Null: no such file.
const PageAsset* find_page_asset(std::string_view path);

// Content-Security-Policy of all files: nothing external and nothing inline, so that model output cannot become a
// script, a style or a request.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace millrace
