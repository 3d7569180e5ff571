#include "store/sha256.h"

#include <openssl/evp.h>

#include "base/ascii.h"
#include "base/error.h"

namespace millrace {
namespace {

void free_context(void* context) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }
EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), free_context) {
  if (!context_ || EVP_DigestInit_ex(as_context(context_.get()), EVP_sha256(), nullptr) != 1) {
    fail(ErrorKind::Io, "OpenSSL offers no SHA-256");
  }
}

void Sha256::add(std::string_view piece) {
  if (EVP_DigestUpdate(as_context(context_.get()), piece.data(), piece.size()) != 1) {
    fail(ErrorKind::Io, "OpenSSL could not compute a SHA-256");
  }
}

std::string Sha256::hex() const {
  const Sha256 copy;  // finishing invalidates a context, so finish a copy
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_MD_CTX_copy_ex(as_context(copy.context_.get()), as_context(context_.get())) != 1 ||
      EVP_DigestFinal_ex(as_context(copy.context_.get()), digest, &size) != 1) {
    fail(ErrorKind::Io, "OpenSSL could not compute a SHA-256");
  }
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string parse_sha256(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  if (text.size() != 64) return "";
  const bool hexadecimal = text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  return hexadecimal ? ascii_lower(text) : "";
}

}  // namespace millrace
