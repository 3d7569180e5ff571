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

}  // namespace millrace
