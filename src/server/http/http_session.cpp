#include "server/http/http_session.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <optional>

#include "base/ascii.h"
#include "server/http/host_field.h"

namespace millrace {
namespace {

namespace beast_http = boost::beast::http;

// Chunked transfer encoding: the size in hexadecimal, then the bytes.
void append_chunk(std::string_view bytes, std::string& text) {
  std::array<char, 16> size;
  const auto end = std::to_chars(size.begin(), size.end(), bytes.size(), 16).ptr;
  text.append(size.begin(), end).append("\r\n").append(bytes).append("\r\n");
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// A proxy may send an absolute target, http://host/path.
std::string_view without_host(std::string_view target) {
  const size_t scheme = target.starts_with('/') ? std::string_view::npos : target.find("://");
  if (scheme == std::string_view::npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

}  // namespace

struct HttpSession::Message {
  beast_http::request_parser<beast_http::string_body> parser;
  bool has_header = false;

  explicit Message(const HttpLimits& limits) {
    parser.header_limit(static_cast<uint32_t>(limits.header));
    parser.body_limit(limits.body);
  }
};

HttpSession::HttpSession(std::unique_ptr<HttpTransport> transport, HttpSessionHost& host, std::string peer)
    : transport_(std::move(transport)), host_(host), peer_(std::move(peer)), since_(Clock::now()), progress_(since_) {}

HttpSession::~HttpSession() = default;

void HttpSession::start() {
  transport_->start([self = shared_from_this()](bool good, size_t) {
    if (self->closed()) return;
    if (!good) return self->close();
    self->state_ = State::Reading;
    self->since_ = Clock::now();
    self->read_more();
  });
}

void HttpSession::read_more() {
  const bool full = state_ == State::Answering && in_.size() >= host_.limits.ahead;
  if (reading_ || at_end_ || full || closed()) return;
  reading_ = true;
  chunk_.resize(size_t{16} << 10);
  transport_->read(chunk_, [self = shared_from_this()](bool good, size_t bytes) { self->on_read(good, bytes); });
}

void HttpSession::on_read(bool good, size_t bytes) {
  reading_ = false;
  if (closed()) return;
  if (!good) return peer_left();
  if (state_ != State::Lingering) in_.append(chunk_, 0, bytes);  // bytes received while lingering are dropped
  if (state_ == State::Reading) parse();
  read_more();
}

// The client may have closed only its sending side: a request that is already complete is still answered.
void HttpSession::peer_left() {
  at_end_ = true;
  keep_alive_ = false;
  if (state_ != State::Answering) return close();
  if (const auto exchange = exchange_.lock()) exchange->mark_gone();
}

void HttpSession::parse() {
  while (state_ == State::Reading && !in_.empty()) {
    if (!message_) {
      in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));  // some clients send a line end after a body
      if (in_.empty()) return;
      message_ = std::make_unique<Message>(host_.limits);
      old_ = head_only_ = false;  // a refusal before the header is complete is sent in full
      since_ = Clock::now();
    }
    boost::system::error_code error;
    auto& parser = message_->parser;
    const size_t taken = parser.put(boost::asio::buffer(in_), error);
    in_.erase(0, taken);
    if (error == beast_http::error::header_limit) return refuse(431, "the request's header is too large");
    if (error == beast_http::error::body_limit) {
      return refuse(413, fmt::format("the request's body is larger than {} bytes", host_.limits.body));
    }
    if (error && error != beast_http::error::need_more) return refuse(400, "this is not HTTP: " + error.message());
    if (parser.is_header_done() && !message_->has_header && !take_header()) return;
    if (parser.is_done()) return dispatch();
    if (error == beast_http::error::need_more) return;
  }
}

bool HttpSession::take_header() {
  message_->has_header = true;
  message_->parser.eager(true);
  since_ = Clock::now();
  const auto& request = message_->parser.get();
  keep_alive_ = request.keep_alive();
  old_ = request.version() < 11;
  head_only_ = request.method() == beast_http::verb::head;
  const auto hosts = request.count(beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && !old_) || !is_host_field(view(request[beast_http::field::host]))) {
    refuse(400, hosts == 0  ? "the request has no Host"
                : hosts > 1 ? "the request has several Hosts"
                            : "Host is invalid");
    return false;
  }
  // The framing of other codings is unknown, and what follows would be taken for the next request (RFC 9112 6.1).
  const auto codings = request.count(beast_http::field::transfer_encoding);
  if (codings > 0) {
    if (old_) keep_alive_ = false;
    const auto coding = ascii_trim(view(request[beast_http::field::transfer_encoding]));
    if (codings > 1 || !equal_ignoring_case(coding, "chunked")) {
      refuse(request.chunked() ? 501 : 400, "the only Transfer-Encoding that this server takes is chunked");
      return false;
    }
  }
  const auto length = message_->parser.content_length();
  const size_t body = length ? static_cast<size_t>(*length) : request.chunked() ? host_.limits.body : 0;
  if (host_.bodies + body > host_.limits.bodies) {
    refuse(503, "too many large requests at once; try again later");
    return false;
  }
  promised_ = body;
  host_.bodies += body;
  if (equal_ignoring_case(view(request[beast_http::field::expect]), "100-continue"))
    queue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void HttpSession::release_body() {
  host_.bodies -= promised_;
  promised_ = 0;
}

void HttpSession::dispatch() {
  auto message = message_->parser.release();
  message_.reset();
  release_body();
  HttpRequest request;
  request.method = view(message.method_string());
  const std::string_view target = without_host(view(message.target()));
  request.path = target.substr(0, target.find('?'));
  if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
  for (const auto& field : message)
    request.headers.emplace_back(ascii_lower(view(field.name_string())), view(field.value()));
  request.body = std::move(message.body());
  request.peer = peer_;
  state_ = State::Answering;
  streaming_ = events_ = ended_ = false;
  const auto exchange = std::make_shared<HttpExchange>(shared_from_this(), std::move(request));
  exchange_ = exchange;
  host_.handler(exchange);
}

// Discards the rest of a refused request instead of parsing it as the next one.
void HttpSession::refuse(int status, const std::string& what) {
  message_.reset();
  release_body();
  in_.clear();
  keep_alive_ = false;
  state_ = State::Answering;
  streaming_ = events_ = ended_ = false;
  answer(host_.refusal(status, what));
}

std::string HttpSession::head_text(const HttpReply& reply, bool stream) const {
  std::string head = fmt::format("HTTP/1.{} {} {}\r\n", old_ ? 0 : 1, reply.status, status_text(reply.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!reply.content_type.empty()) add("Content-Type", reply.content_type);
  if (stream && !old_) add("Transfer-Encoding", "chunked");
  if (!stream && reply.status != 204 && reply.status != 304) add("Content-Length", std::to_string(reply.body.size()));
  if (!keep_alive_ || host_.draining) add("Connection", "close");
  if (keep_alive_ && old_) add("Connection", "keep-alive");
  for (const auto& [name, value] : reply.headers) add(name, value);
  return head += "\r\n";
}

void HttpSession::answer(HttpReply reply) {
  if (state_ != State::Answering || ended_) return;
  close_lane();
  if (streaming_) return close();  // a dropped stream must not look complete
  ended_ = true;
  std::string text = head_text(reply, false);
  if (!head_only_) text += reply.body;
  queue(text);
}

void HttpSession::begin_stream(HttpReply head) {
  if (state_ != State::Answering || ended_ || streaming_) return;
  streaming_ = true;
  events_ = head.content_type.starts_with("text/event-stream");
  if (old_) keep_alive_ = false;  // HTTP/1.0: closing the connection ends the answer
  queue(head_text(head, true));
}

void HttpSession::write(std::string bytes) {
  {
    const std::lock_guard lock(lane_);
    --behind_;
  }
  send(bytes);
}

bool HttpSession::write_now(std::string_view bytes) {
  if (bytes.empty()) return true;  // an empty chunk would end the stream
  const std::lock_guard lock(lane_);
  if (!lane_open_) {
    ++behind_;
    return false;
  }
  framed_.clear();
  append_chunk(bytes, framed_);
  const auto written = transport_->write_now(framed_);
  if (written && written->bytes == framed_.size()) {
    progress_ = Clock::now();
    return true;
  }
  lane_open_ = false;
  ++behind_;
  if (!written) return false;
  post([self = shared_from_this(), good = written->good, rest = framed_.substr(written->bytes)] {
    self->take_rest(good, rest);
  });
  return true;
}

// The part of a piece that write_now() could not write.
void HttpSession::take_rest(bool good, std::string_view rest) {
  {
    const std::lock_guard lock(lane_);
    --behind_;
  }
  if (closed()) return;
  if (!good) return too_slow();
  queue(rest);
}

void HttpSession::open_lane() {
  if (state_ != State::Answering || !streaming_ || ended_ || old_ || writing_now_) return;
  const std::lock_guard lock(lane_);
  lane_open_ = behind_ == 0;
}

bool HttpSession::close_lane() {
  const std::lock_guard lock(lane_);
  lane_open_ = false;
  return behind_ == 0;
}

void HttpSession::note_progress() {
  const std::lock_guard lock(lane_);
  progress_ = Clock::now();
}

HttpSession::Clock::time_point HttpSession::last_progress() {
  const std::lock_guard lock(lane_);
  return progress_;
}

void HttpSession::send(std::string_view bytes) {
  if (state_ != State::Answering || !streaming_ || ended_ || bytes.empty()) return;
  if (out_.size() + writing_.size() - written_ > host_.limits.backlog) return too_slow();
  close_lane();
  if (old_) return queue(bytes);
  append_chunk(bytes, out_);
  if (!writing_now_) write_more();
}

void HttpSession::end_stream() {
  if (state_ != State::Answering || !streaming_ || ended_) return;
  close_lane();
  ended_ = true;
  if (!old_) queue("0\r\n\r\n");
  if (!writing_now_) answered();
}

void HttpSession::too_slow() {
  if (const auto exchange = exchange_.lock()) exchange->mark_gone();
  close();
}

void HttpSession::queue(std::string_view bytes) {
  out_ += bytes;
  if (!writing_now_) write_more();
}

void HttpSession::write_more() {
  if (written_ == writing_.size()) {
    writing_.clear();
    writing_.swap(out_);
    written_ = 0;
    note_progress();
  }
  writing_now_ = true;
  transport_->write(std::string_view(writing_).substr(written_),
                    [self = shared_from_this()](bool good, size_t bytes) { self->on_written(good, bytes); });
}

void HttpSession::on_written(bool good, size_t bytes) {
  writing_now_ = false;
  if (closed()) return;
  if (!good) return too_slow();
  note_progress();
  written_ += bytes;
  if (written_ < writing_.size() || !out_.empty()) return write_more();
  if (state_ == State::Answering && ended_) return answered();
  open_lane();
}

void HttpSession::answered() {
  exchange_.reset();
  if (!keep_alive_ || host_.draining) return linger();
  state_ = State::Reading;
  since_ = Clock::now();
  parse();
  read_more();
}

// Closing with unread bytes would send a reset, and the client could lose an answer it has not read yet.
void HttpSession::linger() {
  if (at_end_) return close();
  state_ = State::Lingering;
  since_ = Clock::now();
  in_.clear();
  transport_->finish([self = shared_from_this()](bool, size_t) {});  // the callback keeps the session alive
  read_more();
}

void HttpSession::drain() {
  if (state_ == State::Reading && !message_) close();
}

void HttpSession::close() {
  if (closed()) return;
  close_lane();
  state_ = State::Closed;
  message_.reset();
  release_body();
  if (const auto exchange = exchange_.lock()) exchange->mark_gone();
  transport_->close();
}

void HttpSession::tick(Clock::time_point now) {
  const auto& limits = host_.limits;
  const auto waited = now - since_;
  switch (state_) {
    case State::Closed:
      return;
    case State::Starting:
      if (waited > limits.header_time) close();
      return;
    case State::Reading:
      if (!message_) return waited > limits.idle_time ? close() : void();
      if (waited > (message_->has_header ? limits.body_time : limits.header_time)) {
        refuse(408, "the request did not arrive in time");
      }
      return;
    case State::Answering:
      if (writing_now_ && now - last_progress() > limits.write_time) return too_slow();
      if (!events_ || ended_ || writing_now_ || now - last_progress() < limits.comment_every) return;
      if (close_lane()) send(": keep-alive\n\n");  // never in the middle of a piece
      return;
    case State::Lingering:
      if (waited > limits.linger_time) close();
      return;
  }
}

}  // namespace millrace
