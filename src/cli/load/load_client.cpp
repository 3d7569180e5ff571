#include "cli/load/load_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "cli/load/http_answer.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

struct CloseEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CloseMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::unique_ptr<curl_slist, FreeList> headers_of(const LoadPlan& plan) {
  curl_slist* list = nullptr;
  if (!plan.key.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + plan.key).c_str());
  return std::unique_ptr<curl_slist, FreeList>(list);
}

// Request line and headers of each request, except its length.
std::string request_head(const LoadPlan& plan, const std::string& url) {
  const std::unique_ptr<CURLU, FreeUrl> parts(curl_url());
  if (curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    fail(ErrorKind::Usage, "{}: not the address of a server", plan.url);
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(parts.get(), which, &text, 0) != CURLUE_OK) return std::string();
    std::string result(text);
    curl_free(text);
    return result;
  };
  const std::string port = part(CURLUPART_PORT);
  std::string head = fmt::format("POST {} HTTP/1.1\r\nHost: {}{}{}\r\n", part(CURLUPART_PATH), part(CURLUPART_HOST),
                                 port.empty() ? "" : ":", port);
  if (!plan.key.empty()) head += "Authorization: Bearer " + plan.key + "\r\n";
  return head + "Content-Type: application/json\r\nAccept: text/event-stream\r\nConnection: close\r\n";
}

struct Flight {
  size_t index;
  std::unique_ptr<CURL, CloseEasy> handle;
  std::string request;
  size_t sent = 0;
  curl_socket_t socket = CURL_SOCKET_BAD;  // bad: not connected yet
  HttpAnswer answer;
};

// libcurl connects, with TLS if needed. From then on a token costs one wait and one read: client and server often share
// a machine, and the client's work per token would be measured as the server's.
class Run {
 public:
  Run(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan),
        progress_(progress),
        url_(base_url(plan.url) + "/chat/completions"),
        head_(request_head(plan, url_)),
        encrypted_(url_.starts_with("https:")),
        multi_(curl_multi_init()),
        arrivals_(plan),
        buffer_(size_t{1} << 16, '\0') {
    next_at_ = arrivals_.next();
  }
  ~Run() {
    for (Flight& flight : flights_) curl_multi_remove_handle(multi_.get(), flight.handle.get());
  }

  std::vector<LoadedRequest> go() {
    while (!interrupted()) {
      begin_due();
      if (flights_.empty() && !more_to_begin()) break;
      if (connecting_ > 0) connect();
      give_up_late();
      progress_({now(), static_cast<int>(flights_.size()), finished_, failed_});
      wait_and_talk();
    }
    drop_unfinished();
    return std::move(requests_);
  }

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Place = std::list<Flight>::iterator;

  bool more_to_begin() const {
    if (plan_.requests > 0 && static_cast<int>(requests_.size()) >= plan_.requests) return false;
    return (plan_.rate > 0 ? next_at_ : now()) < plan_.duration;
  }

  void begin_due() {
    while (more_to_begin()) {
      const bool due = plan_.rate > 0 ? next_at_ <= now() : static_cast<int>(flights_.size()) < plan_.streams;
      if (!due) return;
      begin();
      next_at_ = arrivals_.next();
    }
  }

  void begin() {
    const size_t index = requests_.size();
    requests_.emplace_back();
    const std::string body = load_request(plan_, index);
    Flight& flight = flights_.emplace_back(
        Flight{.index = index,
               .handle = std::unique_ptr<CURL, CloseEasy>(curl_easy_init()),
               .request = fmt::format("{}Content-Length: {}\r\n\r\n{}", head_, body.size(), body)});
    CURL* handle = flight.handle.get();
    curl_easy_setopt(handle, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(handle, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTPPROXYTUNNEL, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(plan_.patience * 1000));
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
    curl_multi_add_handle(multi_.get(), handle);
    ++connecting_;
    requests_[index].begin = now();
  }

  void connect() {
    int left = 0;
    curl_multi_perform(multi_.get(), &left);
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto flight = std::find_if(flights_.begin(), flights_.end(),
                                       [&](const Flight& one) { return one.handle.get() == message->easy_handle; });
      const CURLcode code = message->data.result;
      --connecting_;
      curl_easy_getinfo(flight->handle.get(), CURLINFO_ACTIVESOCKET, &flight->socket);
      if (code != CURLE_OK) finish(flight, curl_easy_strerror(code));
    }
  }

  void give_up_late() {
    for (auto flight = flights_.begin(); flight != flights_.end();) {
      const auto here = flight++;
      const bool is_late = now() - requests_[here->index].begin > plan_.patience;
      if (is_late && here->socket != CURL_SOCKET_BAD) finish(here, "the answer took too long");
    }
  }

  void wait_and_talk() {
    waits_.clear();
    waiting_.clear();
    for (auto flight = flights_.begin(); flight != flights_.end(); ++flight) {
      if (flight->socket == CURL_SOCKET_BAD) continue;
      const bool sends = flight->sent < flight->request.size();
      // A server may refuse a request while it is still being sent.
      const int wanted = CURL_WAIT_POLLIN | (sends ? CURL_WAIT_POLLOUT : 0);
      waits_.push_back({flight->socket, static_cast<short>(wanted), 0});
      waiting_.push_back(flight);
    }
    curl_multi_poll(multi_.get(), waits_.data(), static_cast<unsigned>(waits_.size()), wait_ms(), nullptr);
    for (size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i].revents != 0) talk(waiting_[i], (waits_[i].revents & CURL_WAIT_POLLIN) != 0);
    }
  }

  void talk(Place flight, bool has_answer) {
    if (has_answer || flight->sent == flight->request.size()) return receive(flight);
    size_t sent = 0;
    const std::string_view rest = std::string_view(flight->request).substr(flight->sent);
    const CURLcode code = curl_easy_send(flight->handle.get(), rest.data(), rest.size(), &sent);
    if (code != CURLE_OK && code != CURLE_AGAIN) {
      flight->sent = flight->request.size();  // the server reads no more; it may have sent an answer that says why
      return receive(flight);
    }
    flight->sent += sent;
  }

  void receive(Place flight) {
    while (true) {
      size_t bytes = 0;
      const CURLcode code = curl_easy_recv(flight->handle.get(), buffer_.data(), buffer_.size(), &bytes);
      if (code == CURLE_AGAIN) return;
      if (code != CURLE_OK) return finish(flight, curl_easy_strerror(code));
      if (bytes == 0) return finish(flight, flight->answer.close() ? "" : "the server closed the connection");
      try {
        if (flight->answer.feed(std::string_view(buffer_).substr(0, bytes), now())) return finish(flight, "");
      } catch (const Error& e) {
        return finish(flight, e.what());
      }
      if (!encrypted_ && bytes < buffer_.size()) return;  // with TLS, buffered data would not wake the wait
    }
  }

  void finish(Place flight, std::string_view problem) {
    LoadedRequest& request = requests_[flight->index];
    request.end = now();
    read_answer(flight->answer, request);
    if (!problem.empty()) request.problem = problem;
    if (request.tokens == 0) request.tokens = static_cast<int64_t>(request.pieces.size());
    ++(request.problem.empty() ? finished_ : failed_);
    curl_multi_remove_handle(multi_.get(), flight->handle.get());
    flights_.erase(flight);
  }

  static void read_answer(const HttpAnswer& answer, LoadedRequest& request) {
    if (answer.status() == 200) {
      AnswerStream stream(request);
      answer.for_pieces([&](std::string_view bytes, double time) { stream.feed(bytes, time); });
      stream.end();
      if (request.problem.empty() && !stream.done()) request.problem = "the stream ended before [DONE]";
      return;
    }
    std::string body;
    answer.for_pieces([&](std::string_view bytes, double) { body += bytes; });
    const auto json = read_json(body);
    const bool told = json.is_object() && json.contains("error") && json["error"].is_object();
    request.problem =
        fmt::format("status {}{}", answer.status(), told ? ": " + json["error"].value("message", "") : "");
  }

  int wait_ms() const {
    if (plan_.rate > 0 && more_to_begin()) return static_cast<int>(std::clamp((next_at_ - now()) * 1000, 0.0, 100.0));
    return 100;
  }

  void drop_unfinished() {
    std::erase_if(requests_, [](const LoadedRequest& request) { return request.end == 0; });
  }

  const LoadPlan& plan_;
  const std::function<void(const LoadProgress&)>& progress_;
  std::string url_, head_;
  bool encrypted_;
  std::unique_ptr<CURLM, CloseMulti> multi_;
  std::list<Flight> flights_;
  std::vector<curl_waitfd> waits_;
  std::vector<Place> waiting_;  // waiting_[i] is the flight of waits_[i]
  std::vector<LoadedRequest> requests_;
  Arrivals arrivals_;
  std::string buffer_;
  double next_at_ = 0;
  int connecting_ = 0, finished_ = 0, failed_ = 0;
  Clock::time_point start_ = Clock::now();
};

size_t append(char* data, size_t size, size_t count, void* user) {
  static_cast<std::string*>(user)->append(data, size * count);
  return size * count;
}

}  // namespace

std::string base_url(std::string url) {
  if (url.find("://") == std::string::npos) url = "http://" + url;
  while (url.ends_with('/')) url.pop_back();
  return url.ends_with("/v1") ? url : url + "/v1";
}

std::string first_model(const LoadPlan& plan) {
  const std::unique_ptr<CURL, CloseEasy> handle(curl_easy_init());
  const auto headers = headers_of(plan);
  const std::string url = base_url(plan.url) + "/models";
  std::string body;
  curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, 15000L);
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  const CURLcode code = curl_easy_perform(handle.get());
  if (code != CURLE_OK) fail(ErrorKind::Network, "cannot reach {}: {}", url, curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  const auto json = read_json(body);
  const bool listed = json.is_object() && json.contains("data") && json["data"].is_array() && !json["data"].empty();
  if (status != 200 || !listed || !json["data"][0].is_object()) {
    fail(ErrorKind::Network, "{} answered {} and no list of models; is it an OpenAI-compatible server?", url, status);
  }
  return json["data"][0].value("id", "");
}

std::vector<LoadedRequest> run_load(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress) {
  return Run(plan, progress).go();
}

}  // namespace millrace
