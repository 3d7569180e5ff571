// Incremental SHA-256.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace millrace {

class Sha256 {
 public:
  Sha256();
  void add(std::string_view piece);
  std::string hex() const;  // digest of all bytes added so far; more may follow

 private:
  std::unique_ptr<void, void (*)(void*)> context_;
};

// Returns 64 lower-case hexadecimal digits, or an empty string if the text is no SHA-256. Accepts quotes, as in an
// ETag.
std::string parse_sha256(std::string_view text);

}  // namespace millrace
