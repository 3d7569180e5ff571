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

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

struct CloseEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CloseMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string base_url(std::string url) {
  if (url.find("://") == std::string::npos) url = "http://" + url;
  while (url.ends_with('/')) url.pop_back();
  return url.ends_with("/v1") ? url : url + "/v1";
}

std::unique_ptr<curl_slist, FreeList> headers_of(const LoadPlan& plan) {
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");
  if (!plan.key.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + plan.key).c_str());
  return std::unique_ptr<curl_slist, FreeList>(list);
}

class Run;

struct Flight {
  Run* run;
  size_t index;
  std::unique_ptr<CURL, CloseEasy> handle;
  std::string body;    // sent
  std::string answer;  // as long as it is an error and not a stream
  std::unique_ptr<AnswerStream> stream;
};

class Run {
 public:
  Run(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan),
        progress_(progress),
        url_(base_url(plan.url) + "/chat/completions"),
        headers_(headers_of(plan)),
        multi_(curl_multi_init()),
        arrivals_(plan) {
    curl_multi_setopt(multi_.get(), CURLMOPT_MAX_TOTAL_CONNECTIONS, 0L);
    next_at_ = arrivals_.next();
    requests_.reserve(1 << 16);
  }
  ~Run() {
    for (Flight& flight : flights_) curl_multi_remove_handle(multi_.get(), flight.handle.get());
  }

  std::vector<LoadedRequest> go() {
    while (!interrupted()) {
      begin_due();
      if (flights_.empty() && !more_to_begin()) break;
      int running = 0;
      curl_multi_perform(multi_.get(), &running);
      collect();
      progress_({now(), static_cast<int>(flights_.size()), finished_, failed_});
      curl_multi_poll(multi_.get(), nullptr, 0, wait_ms(), nullptr);
    }
    drop_unfinished();
    return std::move(requests_);
  }

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  bool more_to_begin() const {
    if (plan_.requests > 0 && static_cast<int>(requests_.size()) >= plan_.requests) return false;
    return (plan_.rate > 0 ? next_at_ : now()) < plan_.duration;
  }

  void begin_due() {
    while (more_to_begin()) {
      const bool due = plan_.rate > 0 ? next_at_ <= now() : static_cast<int>(flights_.size()) < plan_.streams;
      if (!due || requests_.size() == requests_.capacity()) return;  // pointers into the list must stay
      begin();
      next_at_ = arrivals_.next();
    }
  }

  void begin() {
    const size_t index = requests_.size();
    requests_.emplace_back();
    Flight& flight = flights_.emplace_back(Flight{this, index, std::unique_ptr<CURL, CloseEasy>(curl_easy_init()),
                                                  load_request(plan_, index), "", nullptr});
    flight.stream = std::make_unique<AnswerStream>(requests_[index]);
    CURL* handle = flight.handle.get();
    curl_easy_setopt(handle, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers_.get());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, flight.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(flight.body.size()));
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &Run::on_bytes);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &flight);
    curl_easy_setopt(handle, CURLOPT_PRIVATE, &flight);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(plan_.patience * 1000));
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
    curl_multi_add_handle(multi_.get(), handle);
    requests_[index].begin = now();
  }

  static size_t on_bytes(char* data, size_t size, size_t count, void* user) {
    Flight& flight = *static_cast<Flight*>(user);
    const std::string_view bytes(data, size * count);
    long status = 0;
    curl_easy_getinfo(flight.handle.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
      flight.stream->feed(bytes, flight.run->now());
    } else if (flight.answer.size() < 10000) {
      flight.answer += bytes;
    }
    return bytes.size();
  }

  void collect() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      Flight* flight = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &flight);
      finish(*flight, message->data.result);
    }
  }

  void finish(Flight& flight, CURLcode code) {
    LoadedRequest& request = requests_[flight.index];
    request.end = now();
    flight.stream->end();
    long status = 0;
    curl_easy_getinfo(flight.handle.get(), CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK) {
      request.problem = curl_easy_strerror(code);
    } else if (status != 200) {
      const auto json = read_json(flight.answer);
      const bool told = json.is_object() && json.contains("error") && json["error"].is_object();
      request.problem = fmt::format("status {}{}", status, told ? ": " + json["error"].value("message", "") : "");
    } else if (request.problem.empty() && !flight.stream->done()) {
      request.problem = "the stream ended before [DONE]";
    }
    if (request.tokens == 0) request.tokens = static_cast<int64_t>(request.pieces.size());
    ++(request.problem.empty() ? finished_ : failed_);
    curl_multi_remove_handle(multi_.get(), flight.handle.get());
    flights_.remove_if([&](const Flight& one) { return &one == &flight; });
  }

  int wait_ms() const {
    if (plan_.rate > 0 && more_to_begin()) return static_cast<int>(std::clamp((next_at_ - now()) * 1000, 0.0, 100.0));
    return 100;
  }

  void drop_unfinished() {
    std::vector<LoadedRequest> whole;
    for (LoadedRequest& request : requests_) {
      if (request.end > 0) whole.push_back(std::move(request));
    }
    requests_ = std::move(whole);
  }

  const LoadPlan& plan_;
  const std::function<void(const LoadProgress&)>& progress_;
  std::string url_;
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::unique_ptr<CURLM, CloseMulti> multi_;
  std::list<Flight> flights_;
  std::vector<LoadedRequest> requests_;
  Arrivals arrivals_;
  double next_at_ = 0;
  int finished_ = 0, failed_ = 0;
  Clock::time_point start_ = Clock::now();
};

size_t append(char* data, size_t size, size_t count, void* user) {
  static_cast<std::string*>(user)->append(data, size * count);
  return size * count;
}

}  // namespace

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
