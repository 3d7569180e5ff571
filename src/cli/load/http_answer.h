// An HTTP/1.1 answer as it arrives: keeps its body with the arrival time of each piece.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace millrace {

class HttpAnswer {
 public:
  HttpAnswer();
  HttpAnswer(HttpAnswer&&) noexcept;
  ~HttpAnswer();

  // True: the answer is complete. Throws Network if it is not HTTP.
  bool feed(std::string_view bytes, double now);
  // The server closed the connection. True: that completes the answer.
  bool close();

  int status() const;  // 0: not known yet
  // The body in pieces as received, each with its time.
  void for_pieces(FunctionRef<void(std::string_view bytes, double time)> body) const;

 private:
  struct Parser;
  struct Arrival {
    size_t end;  // offset in the body
    double time;
  };

  std::unique_ptr<Parser> parser_;
  std::string unread_;  // bytes that the parser needs more input for
  std::vector<Arrival> arrivals_;
};

}  // namespace millrace
