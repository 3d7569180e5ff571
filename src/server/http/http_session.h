// One connection: reads requests in sequence, passes each to the server and writes its answer. It detects a client that
// disconnects before its answer is complete, and limits clients' memory and their time to send and to read.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http/http.h"
#include "server/http/http_transport.h"

namespace millrace {

struct HttpLimits {
  size_t body = size_t{8} << 20;
  size_t bodies = size_t{256} << 20;  // over all connections, while being read
  size_t header = size_t{16} << 10;
  size_t ahead = size_t{64} << 10;   // bytes of pipelined requests read while one is answered
  size_t backlog = size_t{1} << 20;  // bytes of a stream that the client has not read yet
  std::chrono::seconds header_time{10}, body_time{60}, idle_time{75}, write_time{30}, linger_time{2};
  std::chrono::seconds comment_every{10};  // keep-alive comments in an idle event stream
};

// Shared by all sessions of a server.
struct HttpSessionHost {
  HttpLimits limits;
  HttpHandler handler;                                                    // on the I/O thread: must not block
  std::function<HttpReply(int status, const std::string& what)> refusal;  // body of an answer to a protocol error
  size_t bodies = 0;                                                      // bytes reserved for bodies being read
  bool draining = false;
};

class HttpSession final : public HttpConnection, public std::enable_shared_from_this<HttpSession> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpSession(std::unique_ptr<HttpTransport> transport, HttpSessionHost& host, std::string peer);
  ~HttpSession() override;

  void start();
  void tick(Clock::time_point now);  // about once a second: timeouts and keep-alive
  void drain();                      // closes unless it is answering
  void close();
  bool closed() const { return state_ == State::Closed; }

  void post(std::function<void()> task) override { transport_->post(std::move(task)); }
  bool write_now(std::string_view bytes) override;
  void answer(HttpReply reply) override;
  void begin_stream(HttpReply head) override;
  void write(std::string bytes) override;
  void end_stream() override;

 private:
  enum class State { Starting, Reading, Answering, Lingering, Closed };
  struct Message;  // the request being parsed

  void read_more();
  void on_read(bool good, size_t bytes);
  void parse();
  bool take_header();  // false: the request was refused
  void dispatch();
  void refuse(int status, const std::string& what);
  void peer_left();
  void too_slow();
  void send(std::string_view bytes);  // a piece of a stream
  void take_rest(bool good, std::string_view rest);
  void open_lane();
  bool close_lane();  // false: pieces are on their way to the I/O thread
  void note_progress();
  Clock::time_point last_progress();
  void queue(std::string_view bytes);
  void write_more();
  void on_written(bool good, size_t bytes);
  void answered();
  void linger();
  void release_body();
  std::string head_text(const HttpReply& reply, bool stream) const;

  std::unique_ptr<HttpTransport> transport_;
  HttpSessionHost& host_;
  std::string peer_;
  State state_ = State::Starting;
  Clock::time_point since_;  // start of the current state, or of the current part of a request

  std::string in_, chunk_;  // received and not parsed; read buffer
  bool reading_ = false, at_end_ = false;
  std::unique_ptr<Message> message_;
  size_t promised_ = 0;  // this session's part of host_.bodies

  std::weak_ptr<HttpExchange> exchange_;
  bool keep_alive_ = true, old_ = false, head_only_ = false;  // of the current request; old_: HTTP/1.0
  bool streaming_ = false, events_ = false, ended_ = false;

  std::string out_, writing_;  // queued; being written
  size_t written_ = 0;         // bytes of writing_
  bool writing_now_ = false;

  // The fast lane: other threads write pieces of a stream directly. It is open while nothing else is queued. The I/O
  // thread closes it before it writes, ends or closes, and opens it again afterwards.
  std::mutex lane_;  // guards the members below
  bool lane_open_ = false;
  int behind_ = 0;              // pieces that missed the lane, on their way to the I/O thread
  std::string framed_;          // a piece with its chunk frame
  Clock::time_point progress_;  // time of the last successful write
};

}  // namespace millrace
