#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <sstream>

#include "base/ascii.h"
#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kShortest = 8;

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> found;
  for (std::string word; in >> word;) found.push_back(word);
  return found;
}

}  // namespace

ApiKeys::Hash ApiKeys::hash(std::string_view text) {
  Hash result{};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), result.data(), &size, EVP_sha256(), nullptr);
  return result;
}

void ApiKeys::add(std::string_view lines, const std::string& origin) {
  std::istringstream in{std::string(lines)};
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto parts = words(line);
    if (parts.empty() || parts[0].starts_with('#')) continue;
    if (parts.size() > 2) fail(ErrorKind::Usage, "{}, line {}: expected KEY, or NAME KEY", origin, number);
    const std::string& key = parts.back();
    if (key.size() < kShortest) {
      fail(ErrorKind::Usage, "{}, line {}: an API key has at least {} characters", origin, number, kShortest);
    }
    const std::string name = parts.size() == 2 ? parts[0] : "key" + std::to_string(keys_.size() + 1);
    keys_.push_back({name, hash(key)});
  }
}

std::optional<std::string> ApiKeys::holder(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (!equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  const Hash given = hash(authorization.substr(kScheme.size()));
  const Key* found = nullptr;
  for (const Key& key : keys_) {  // no early exit: constant time
    if (CRYPTO_memcmp(key.hash.data(), given.data(), given.size()) == 0) found = &key;
  }
  return found == nullptr ? std::nullopt : std::optional(found->name);
}

}  // namespace millrace
