// Finds the end of one JSON value in a stream of bytes. Tracks brackets and quotes only and does not validate the
// value.
#pragma once

#include <cstdint>

#include "base/ascii.h"

namespace millrace {

class JsonExtent {
 public:
  enum class Step : uint8_t {
    Inside,
    End,         // the byte is the last of the value
    EndsBefore,  // the value ended with the previous byte: a number or a word
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
