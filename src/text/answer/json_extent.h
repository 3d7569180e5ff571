// Tells where one JSON value ends in a text that comes byte by byte. It looks at brackets and quotes only: whether the
// value is valid is not its business.
#pragma once

#include <cstdint>

#include "base/ascii.h"

namespace millrace {

class JsonExtent {
 public:
  enum class Step : uint8_t {
    Inside,
    End,         // the byte is the value's last
    EndsBefore,  // the value ended with the byte before: a number or a word, which only its follower ends
  };

  Step take(char byte) {
    if (in_string_) return in_string(byte);
    if (byte == '"') {
      in_string_ = true;
      begun_ = true;
      return Step::Inside;
    }
    if (byte == '{' || byte == '[') {
      begun_ = true;
      ++depth_;
      return Step::Inside;
    }
    const bool closes = byte == '}' || byte == ']';
    if (depth_ > 0) return closes && --depth_ == 0 ? Step::End : Step::Inside;
    if (begun_ && (closes || byte == ',' || is_ascii_space(byte))) return Step::EndsBefore;
    begun_ = true;
    return Step::Inside;
  }

 private:
  Step in_string(char byte) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
      if (depth_ == 0) return Step::End;
    }
    return Step::Inside;
  }

  uint64_t depth_ = 0;
  bool begun_ = false, in_string_ = false, escaped_ = false;
};

}  // namespace millrace
