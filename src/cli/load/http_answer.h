// An HTTP/1.1 answer as it comes off the wire: its body is kept with the times of its bytes.
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

  // True: the answer is whole. Throws Network where it is no HTTP.
  bool feed(std::string_view bytes, double now);
  // The other side closed the connection. True: that is the end of a whole answer.
  bool close();

  int status() const;  // 0: not known yet
  // The body, piece by piece as it came, each with its time.
  void for_pieces(FunctionRef<void(std::string_view bytes, double time)> body) const;

 private:
  struct Parser;
  struct Arrival {
    size_t end;  // of the body so far
    double time;
  };

  std::unique_ptr<Parser> parser_;
  std::string unread_;  // bytes that the parser takes when more of them are there
  std::vector<Arrival> arrivals_;
};

}  // namespace millrace
