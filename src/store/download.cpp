#include "store/download.h"

#include <charconv>

#include "base/progress.h"
#include "store/part_file.h"
#include "store/retry.h"
#include "store/url.h"

namespace millrace {
namespace {

// Aborts a transfer whose range does not continue the partial file.
struct DoesNotContinue {};

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "bytes 100-199/200": 100.
std::optional<uint64_t> range_begin(const HttpHead& head) {
  const std::string range = head.header("content-range");
  const auto dash = range.find('-');
  if (!range.starts_with("bytes ") || dash == std::string::npos) return std::nullopt;
  return number(std::string_view(range).substr(6, dash - 6));
}

// "bytes 100-199/200" or "bytes */200": 200.
std::optional<uint64_t> range_total(const HttpHead& head) {
  const std::string range = head.header("content-range");
  const auto slash = range.find('/');
  return slash == std::string::npos ? std::nullopt : number(std::string_view(range).substr(slash + 1));
}

// A weak ETag does not promise identical bytes, so a partial file cannot rely on it.
std::string strong_etag(const HttpHead& head) {
  const std::string etag = head.header("etag");
  return etag.starts_with("W/") ? "" : etag;
}

class Fetch {
 public:
  Fetch(HttpClient& client, const Download& what) : client_(client), what_(what), part_(what.target) {}

  HttpHead run() {
    bool had_part = part_.size() > 0;
    for (;;) {
      HttpHead head;
      with_retries(
          client_.options().cancelled, [&] { return part_.size(); }, [&] { head = transfer(); });
      const std::string problem = find_problem(head);
      if (problem.empty()) {
        part_.put_in_place();
        return head;
      }
      if (!had_part) reject(problem);
      part_.restart("");  // the partial file may be stale: start over once
      had_part = false;
    }
  }

 private:
  HttpHead transfer() {
    try {
      return ask();
    } catch (const DoesNotContinue&) {
      part_.restart("");
      return ask();
    }
  }

  // Resuming a partial file without a validator is safe only if a checksum verifies the result.
  bool may_resume() const { return part_.size() > 0 && (!part_.validator().empty() || !what_.sha256.empty()); }

  HttpHead ask() {
    std::vector<std::string> headers;
    if (!may_resume()) part_.restart("");
    if (part_.size() > 0) headers.push_back(fmt::format("Range: bytes={}-", part_.size()));
    if (!part_.validator().empty()) headers.push_back("If-Range: " + part_.validator());
    bool begun = false;
    const HttpHead head = client_.get(what_.url, headers, [&](const HttpHead& h, std::string_view piece) {
      if (h.status != 200 && h.status != 206) return;  // body of an error page
      if (!begun) begin(h);
      begun = true;
      take(piece);
    });
    const bool whole_already = head.status == 416 && range_total(head) == part_.size();
    if (head.status == 416 && part_.size() > 0 && !whole_already) throw DoesNotContinue();
    if (head.status != 200 && head.status != 206 && !whole_already) throw_status(head, what_.url);
    if (!begun && !whole_already) begin(head);  // an empty file
    return head;
  }

  void begin(const HttpHead& head) {
    if (head.status == 200) {
      part_.restart(strong_etag(head));  // the server cannot resume, or the content has changed
    } else {
      const std::string etag = strong_etag(head);
      const bool same = etag.empty() || part_.validator().empty() || etag == part_.validator();
      if (range_begin(head) != part_.size() || !same) throw DoesNotContinue();
    }
    const auto left = number(head.header("content-length"));
    expected_ = what_.bytes ? what_.bytes : number(head.header("x-linked-size"));
    if (!expected_ && left) expected_ = part_.size() + *left;
    if (expected_ && *expected_ > part_.size()) part_.require_space(*expected_ - part_.size());
    if (!what_.progress) {
      progress_.emplace(what_.label, static_cast<int64_t>(expected_.value_or(0)), Progress::Unit::Transfer);
    }
  }

  void take(std::string_view piece) {
    if (expected_ && part_.size() + piece.size() > *expected_) {
      reject(fmt::format("more than the {} bytes that it should have", *expected_));
    }
    part_.append(piece);
    if (progress_) progress_->set(static_cast<int64_t>(part_.size()));
    if (what_.progress) what_.progress(part_.size(), expected_.value_or(0));
  }

  std::string find_problem(const HttpHead& head) const {
    if (expected_ && part_.size() != *expected_) {
      return fmt::format("{} bytes came and {} should have", part_.size(), *expected_);
    }
    const std::string wanted = what_.sha256.empty() ? parse_sha256(head.header("x-linked-etag")) : what_.sha256;
    if (!wanted.empty() && part_.sha256() != wanted) {
      return fmt::format("its SHA-256 is {} and should be {}", part_.sha256(), wanted);
    }
    return "";
  }

  [[noreturn]] void reject(const std::string& problem) {
    part_.discard();
    fail(ErrorKind::BadFile, "{}: {}; the download is deleted", printable_url(what_.url), problem);
  }

  HttpClient& client_;
  const Download& what_;
  PartFile part_;
  std::optional<uint64_t> expected_;
  std::optional<Progress> progress_;
};

}  // namespace

HttpHead download(HttpClient& client, const Download& what) { return Fetch(client, what).run(); }

}  // namespace millrace
