// Reads one member out of a ZIP archive (a Python wheel is one). ZIP64 and encryption are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/function_ref.h"

namespace millrace {

struct ZipMember {
  uint64_t size = 0;  // unpacked
  bool deflated = false;
  uint32_t crc32 = 0;
  std::span<const std::byte> data;  // packed, inside the archive
};

// Throws NotFound where there is no such member and BadFile where the archive is broken.
ZipMember find_zip_member(std::span<const std::byte> archive, std::string_view name);

// Hands the unpacked content to `sink` piece by piece, never more than member.size bytes. Throws BadFile where it does
// not unpack to its size and checksum; what was handed over is worthless then.
void unpack(const ZipMember& member, FunctionRef<void(std::string_view piece)> sink);

}  // namespace millrace
