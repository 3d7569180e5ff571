#include "store/url.h"

#include <curl/curl.h>

#include <memory>

#include "base/ascii.h"
#include "base/error.h"

namespace millrace {
namespace {

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

Url parse(const std::string& text) {
  Url url(curl_url());
  // The message omits the text, which may contain a password.
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    fail(ErrorKind::Usage, "not a URL (it should look like https://host/path)");
  }
  return url;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

}  // namespace

std::string url_origin(const std::string& text) {
  const Url url = parse(text);
  const std::string scheme = part(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    fail(ErrorKind::Usage, "{}: only http and https addresses can be fetched", printable_url(text));
  }
  return scheme + "://" + part(url, CURLUPART_HOST) + ":" + part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string join_url(const std::string& base, const std::string& link) {
  const Url url = parse(base);
  if (curl_url_set(url.get(), CURLUPART_URL, link.c_str(), 0) != CURLUE_OK) {
    fail(ErrorKind::Network, "{}: the page holds a broken link", printable_url(base));
  }
  return part(url, CURLUPART_URL);
}

std::string printable_url(const std::string& text) {
  const Url url = parse(text);
  for (const CURLUPart secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(url.get(), secret, nullptr, 0);
  }
  return part(url, CURLUPART_URL);
}

std::string strip_userinfo(const std::string& text, std::string& user_and_password) {
  const Url url = parse(text);
  const std::string user = part(url, CURLUPART_USER, CURLU_URLDECODE);
  const std::string password = part(url, CURLUPART_PASSWORD, CURLU_URLDECODE);
  user_and_password = user.empty() && password.empty() ? "" : user + ":" + password;
  curl_url_set(url.get(), CURLUPART_USER, nullptr, 0);
  curl_url_set(url.get(), CURLUPART_PASSWORD, nullptr, 0);
  return part(url, CURLUPART_URL);
}

std::string escape_path(std::string_view path) {
  static constexpr std::string_view kPlain = "/-._~+";
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_ascii_alnum(c) || kPlain.find(c) != std::string_view::npos) {
      escaped += c;
    } else {
      escaped += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return escaped;
}

}  // namespace millrace
