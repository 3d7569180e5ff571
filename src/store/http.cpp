#include "store/http.h"

#include <curl/curl.h>

#include <exception>

#include "base/ascii.h"
#include "store/url.h"

namespace millrace {
namespace {

constexpr int kMostRedirects = 10;
constexpr size_t kMostHeaders = 200;

struct HeaderList {
  curl_slist* list = nullptr;
  explicit HeaderList(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) list = curl_slist_append(list, line.c_str());
  }
  ~HeaderList() { curl_slist_free_all(list); }
  HeaderList(const HeaderList&) = delete;
};

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// An unknown host and a refused connection are not transient: retries rarely help, and the user waits for the message.
bool is_transient(CURLcode code) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

}  // namespace

// One request and its answer, as libcurl's callbacks see it.
struct HttpClient::Hop {
  CURL* curl;
  const HttpOptions& options;
  Sink& sink;
  const std::map<std::string, std::string>& earlier;  // headers of the previous redirects
  HttpHead head;
  std::exception_ptr thrown = nullptr;

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    auto& hop = *static_cast<Hop*>(self);
    const std::string_view line(data, size);
    if (line.starts_with("HTTP/")) {  // a new response: drop headers of a proxy or of "100 Continue"
      hop.head.headers = hop.earlier;
    } else if (const auto colon = line.find(':'); colon != line.npos && hop.head.headers.size() < kMostHeaders) {
      hop.head.headers[ascii_lower(line.substr(0, colon))] = ascii_trim(line.substr(colon + 1));
    }
    return size;
  }

  static size_t on_body(char* data, size_t, size_t size, void* self) {
    auto& hop = *static_cast<Hop*>(self);
    curl_easy_getinfo(hop.curl, CURLINFO_RESPONSE_CODE, &hop.head.status);
    if (is_redirect(hop.head.status)) return size;
    try {
      hop.sink(hop.head, {data, size});
      return size;
    } catch (...) {  // exceptions must not cross libcurl's C frames
      hop.thrown = std::current_exception();
      return 0;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& hop = *static_cast<Hop*>(self);
    return hop.options.cancelled && hop.options.cancelled() ? 1 : 0;
  }
};

HttpClient::HttpClient(HttpOptions options) : options_(std::move(options)), curl_(nullptr, curl_easy_cleanup) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready == CURLE_OK) curl_.reset(curl_easy_init());
  if (!curl_) fail(ErrorKind::Network, "libcurl could not be initialised");
}

HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;

void HttpClient::prepare(const std::string& url, Hop& hop) {
  CURL* curl = curl_.get();
  curl_easy_reset(curl);  // keeps open connections
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "millrace");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.patience_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.patience_s));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Hop::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &hop);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Hop::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &hop);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Hop::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &hop);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  if (!options_.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
  if (!options_.ca_folder.empty()) curl_easy_setopt(curl, CURLOPT_CAPATH, options_.ca_folder.c_str());
  if (!options_.proxy.empty()) curl_easy_setopt(curl, CURLOPT_PROXY, options_.proxy.c_str());
  if (url_origin(url) != options_.secret_origin) return;
  if (!options_.bearer_token.empty()) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options_.bearer_token.c_str());
  } else if (!options_.user_and_password.empty()) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(curl, CURLOPT_USERPWD, options_.user_and_password.c_str());
  }
}

void HttpClient::perform(const std::string& url, const std::vector<std::string>& headers, Hop& hop) {
  const HeaderList list(headers);
  curl_easy_setopt(hop.curl, CURLOPT_HTTPHEADER, list.list);
  const CURLcode code = curl_easy_perform(hop.curl);
  if (hop.thrown) std::rethrow_exception(hop.thrown);
  if (code == CURLE_ABORTED_BY_CALLBACK) fail(ErrorKind::Cancelled, "{}: stopped", printable_url(url));
  if (code != CURLE_OK) {
    const std::string message = fmt::format("{}: {}", printable_url(url), curl_easy_strerror(code));
    if (is_transient(code)) throw TransientError(message);
    fail(ErrorKind::Network, "{}", message);
  }
  curl_easy_getinfo(hop.curl, CURLINFO_RESPONSE_CODE, &hop.head.status);
}

HttpHead HttpClient::get(const std::string& asked_url, const std::vector<std::string>& headers, Sink sink) {
  std::string url = asked_url;
  std::map<std::string, std::string> earlier;
  for (int hops = 0; hops <= kMostRedirects; ++hops) {
    Hop hop{curl_.get(), options_, sink, earlier, {0, url, {}}};
    prepare(url, hop);
    perform(url, headers, hop);
    char* target = nullptr;
    curl_easy_getinfo(hop.curl, CURLINFO_REDIRECT_URL, &target);
    if (!is_redirect(hop.head.status) || target == nullptr) return hop.head;
    const std::string next = target;
    if (url_origin(url).starts_with("https:") && !url_origin(next).starts_with("https:")) {
      fail(ErrorKind::Network, "{}: the server redirects from https to http, which is refused",
           printable_url(asked_url));
    }
    for (const char* described : {"x-linked-etag", "x-linked-size", "x-repo-commit"}) {
      if (hop.head.headers.contains(described)) earlier[described] = hop.head.headers[described];
    }
    url = next;
  }
  fail(ErrorKind::Network, "{}: redirected more than {} times", printable_url(asked_url), kMostRedirects);
}

HttpClient::Page HttpClient::get_page(const std::string& url, const std::vector<std::string>& headers, size_t limit) {
  Page page;
  page.head = get(url, headers, [&](const HttpHead&, std::string_view piece) {
    if (page.text.size() + piece.size() > limit) {
      fail(ErrorKind::Network, "{}: the answer is longer than {} bytes", printable_url(url), limit);
    }
    page.text += piece;
  });
  if (page.head.status != 200) throw_status(page.head, url);
  return page;
}

void throw_status(const HttpHead& head, const std::string& asked_url) {
  const std::string message = fmt::format("{}: the server answered {}", printable_url(asked_url), head.status);
  const bool busy = head.status == 429 || head.status == 500 || (head.status >= 502 && head.status <= 504);
  if (busy) throw TransientError(message);
  throw HttpStatusError(head.status, message);
}

}  // namespace millrace
