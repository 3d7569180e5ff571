// An HTTP/1.1 answer as it comes off the wire: kept with the times of its bytes, and taken apart as far as it takes to
// know its end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace millrace {

class HttpAnswer {
 public:
  // True: the answer is whole. Throws Network where it is no HTTP.
  bool feed(std::string_view bytes, double now);
  // The other side closed the connection. True: that is the end of a whole answer.
  bool close();

  int status() const { return status_; }  // 0: not known yet
  // The bytes of the body with the time at which the last of each piece came.
  void for_pieces(FunctionRef<void(std::string_view bytes, double time)> body) const;

 private:
  struct Arrival {
    size_t end;  // of the bytes so far
    double time;
  };
  struct Piece {
    size_t begin, end;
  };

  void read_head(double now);
  bool read_chunks();  // true: there was the last one

  std::string bytes_;
  std::vector<Arrival> arrivals_;
  std::vector<Piece> chunks_;
  int status_ = 0;
  size_t body_ = 0;   // where it begins
  size_t chunk_ = 0;  // where the next one begins
  bool chunked_ = false;
  std::optional<size_t> length_;
};

}  // namespace millrace
