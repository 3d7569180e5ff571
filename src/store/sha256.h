// SHA-256, fed piece by piece.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace millrace {

class Sha256 {
 public:
  Sha256();
  void add(std::string_view piece);
  std::string hex() const;  // of everything added so far; adding may go on

 private:
  std::unique_ptr<void, void (*)(void*)> context_;
};

// 64 lower-case hexadecimal digits, or empty where the text is no SHA-256 (quotes around it are fine, as in an ETag).
std::string parse_sha256(std::string_view text);

}  // namespace millrace
