// Any bytes as a ZIP archive: a member unpacks to its size and checksum, or fails with an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "store/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  try {
    const ZipMember member = find_zip_member({reinterpret_cast<const std::byte*>(data), size}, "d/f");
    constexpr uint64_t kLongest = 1 << 22;  // a fetch knows the size beforehand
    if (member.size > kLongest) return 0;
    uint64_t unpacked = 0;
    unpack(member, [&](std::string_view piece) { unpacked += piece.size(); });
    if (unpacked != member.size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
