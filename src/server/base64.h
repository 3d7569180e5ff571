// Base64 (RFC 4648).
#pragma once

#include <openssl/evp.h>

#include <string>
#include <string_view>

namespace millrace {

inline std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // plus the terminating zero that OpenSSL writes
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

// Empty for text that is not base64.
inline std::string from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) return {};
  bytes.resize(static_cast<size_t>(size) - (text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0));
  return bytes;
}

}  // namespace millrace
