#include "store/zip.h"

#include <zlib.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEndOfDirectory = 0x06054b50;
constexpr size_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndOfDirectoryBytes = 22;
constexpr uint32_t kInZip64 = 0xffffffff;

[[noreturn]] void broken(const char* what) { fail(ErrorKind::BadFile, "broken ZIP archive: {}", what); }

// Little-endian reads. Callers have checked the bounds.
uint32_t u16(Bytes bytes, size_t at) {
  return std::to_integer<uint32_t>(bytes[at]) | std::to_integer<uint32_t>(bytes[at + 1]) << 8;
}
uint32_t u32(Bytes bytes, size_t at) { return u16(bytes, at) | u16(bytes, at + 2) << 16; }

Bytes slice(Bytes bytes, uint64_t begin, uint64_t count, const char* what) {
  if (begin > bytes.size() || count > bytes.size() - begin) broken(what);
  return bytes.subspan(begin, count);
}

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The record is at the end of the archive, in front of a comment of at most 65535 bytes.
size_t find_end_of_directory(Bytes archive) {
  if (archive.size() < kEndOfDirectoryBytes) broken("too short");
  const size_t last = archive.size() - kEndOfDirectoryBytes;
  for (size_t back = 0; back <= std::min<size_t>(last, 0xffff); ++back) {
    if (u32(archive, last - back) == kEndOfDirectory && u16(archive, last - back + 20) == back) return last - back;
  }
  broken("no directory at its end");
}

Bytes central_directory(Bytes archive) {
  const size_t end = find_end_of_directory(archive);
  const uint32_t bytes = u32(archive, end + 12), offset = u32(archive, end + 16);
  if (bytes == kInZip64 || offset == kInZip64 || u16(archive, end + 10) == 0xffff) {
    fail(ErrorKind::Unsupported, "ZIP64 archives are not read");
  }
  return slice(archive.first(end), offset, bytes, "its directory lies outside of it");
}

ZipMember read_member(Bytes archive, Bytes entry) {
  const uint32_t flags = u16(entry, 8), method = u16(entry, 10);
  const uint32_t packed = u32(entry, 20), size = u32(entry, 24), offset = u32(entry, 42);
  if (packed == kInZip64 || size == kInZip64 || offset == kInZip64) {
    fail(ErrorKind::Unsupported, "ZIP64 archives are not read");
  }
  if ((flags & 1) != 0) fail(ErrorKind::Unsupported, "encrypted ZIP archives are not read");
  if (method != 0 && method != 8) fail(ErrorKind::Unsupported, "ZIP compression method {} is not read", method);
  if (method == 0 && packed != size) broken("a stored member has two sizes");
  const Bytes local = slice(archive, offset, kLocalHeaderBytes, "a member lies outside of it");
  if (u32(local, 0) != kLocalHeader) broken("a member has no header");
  const uint64_t data = uint64_t(offset) + kLocalHeaderBytes + u16(local, 26) + u16(local, 28);
  return {size, method == 8, u32(entry, 16), slice(archive, data, packed, "a member lies outside of it")};
}

// Owns a zlib stream.
struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail(ErrorKind::OutOfMemory, "no memory to unpack a ZIP archive");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
};

// Counts and checksums the bytes for the sink and throws beyond the declared size, which stops decompression bombs.
struct CheckedSink {
  const ZipMember& member;
  FunctionRef<void(std::string_view)> sink;
  uint64_t size = 0;
  uLong crc = ::crc32(0, nullptr, 0);

  void take(std::string_view piece) {
    size += piece.size();
    if (size > member.size) broken("a member is longer than it says");
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
    sink(piece);
  }
};

void inflate_all(Bytes packed, CheckedSink& checked) {
  constexpr size_t kPiece = 1 << 18;
  std::vector<char> buffer(kPiece);
  Inflater inflater;
  z_stream& stream = inflater.stream;
  // A ZIP member is smaller than 4 GiB, so zlib's 32-bit counter suffices.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  for (int state = Z_OK; state != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = kPiece;
    state = ::inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END) broken("a member does not unpack");
    checked.take({buffer.data(), kPiece - stream.avail_out});
  }
}

}  // namespace

ZipMember find_zip_member(Bytes archive, std::string_view name) {
  Bytes directory = central_directory(archive);
  while (!directory.empty()) {
    const Bytes entry = slice(directory, 0, kCentralHeaderBytes, "its directory is cut off");
    if (u32(entry, 0) != kCentralHeader) broken("its directory holds something else");
    const uint32_t name_bytes = u16(entry, 28);
    const Bytes entry_name = slice(directory, kCentralHeaderBytes, name_bytes, "its directory is cut off");
    if (as_text(entry_name) == name) return read_member(archive, entry);
    const uint64_t whole = uint64_t(kCentralHeaderBytes) + name_bytes + u16(entry, 30) + u16(entry, 32);
    directory = directory.subspan(slice(directory, 0, whole, "its directory is cut off").size());
  }
  fail(ErrorKind::NotFound, "the ZIP archive holds no {}", name);
}

void unpack(const ZipMember& member, FunctionRef<void(std::string_view)> sink) {
  CheckedSink checked{member, sink};
  if (member.deflated) {
    inflate_all(member.data, checked);
  } else {
    checked.take(as_text(member.data));
  }
  if (checked.size != member.size) broken("a member is shorter than it says");
  if (checked.crc != member.crc32) broken("a member's checksum does not match");
}

}  // namespace millrace
