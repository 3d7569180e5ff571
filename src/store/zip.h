// Reads one member of a ZIP archive, such as a Python wheel. Refuses ZIP64 and encryption.
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

// Throws NotFound if the archive has no such member, BadFile if the archive is broken.
ZipMember find_zip_member(std::span<const std::byte> archive, std::string_view name);

// Passes the unpacked content to `sink` piece by piece, at most member.size bytes. Throws BadFile if size or checksum
// differ; the caller must then discard the pieces.
void unpack(const ZipMember& member, FunctionRef<void(std::string_view piece)> sink);

}  // namespace millrace
