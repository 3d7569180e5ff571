#include "store/zip.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

#include "base/error.h"

namespace millrace {
namespace {

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string deflate_raw(const std::string& data) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive of one member, with a comment.
std::string archive_of(const std::string& name, const std::string& data, bool deflated) {
  const std::string packed = deflated ? deflate_raw(data) : data;
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
  std::string common;
  for (const int value : {20, 0, deflated ? 8 : 0, 0, 0}) put(common, value, 2);
  for (const uint64_t value : {uint64_t(crc), uint64_t(packed.size()), uint64_t(data.size())}) put(common, value, 4);
  put(common, name.size(), 2);
  put(common, 0, 2);
  const std::string file = "PK\3\4" + common + name + packed;
  std::string directory("PK\1\2\24\0", 6);
  directory += common;
  directory.append(10, '\0');  // comment, disk, attributes
  put(directory, 0, 4);        // offset of the member
  directory += name;
  std::string end("PK\5\6\0\0\0\0\1\0\1\0", 12);
  put(end, directory.size(), 4);
  put(end, file.size(), 4);
  const std::string comment = "a comment that mentions PK\5\6";
  put(end, comment.size(), 2);
  return file + directory + end + comment;
}

std::string unpacked(const std::string& archive, const std::string& name) {
  std::string out;
  unpack(find_zip_member(std::as_bytes(std::span(archive)), name), [&](std::string_view piece) { out += piece; });
  return out;
}

std::string mixed_bytes(std::mt19937& random, size_t count) {
  std::string data(count, 'x');
  for (size_t i = 0; i < count / 2; ++i) data[i] = static_cast<char>(random());
  return data;
}

TEST(Zip, ReadsStoredAndDeflatedMembers) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  for (const size_t count : {0u, 1u, 1000u, 262144u, 700000u}) {
    const std::string data = mixed_bytes(random, count);
    for (const bool deflated : {false, true}) {
      EXPECT_EQ(unpacked(archive_of("d/f", data, deflated), "d/f"), data) << "seed " << seed << " count " << count;
    }
  }
}

TEST(Zip, SaysWhichMemberIsNotThere) { EXPECT_THROW(unpacked(archive_of("a", "x", true), "b"), Error); }

// Any changed byte must give the right content or an Error, never other content and never a crash.
TEST(Zip, EveryDamagedByteIsNoticedOrHarmless) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  const std::string data = mixed_bytes(random, 300);
  for (const bool deflated : {false, true}) {
    const std::string good = archive_of("d/f", data, deflated);
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
      try {
        EXPECT_EQ(unpacked(bad, "d/f"), data) << "seed " << seed << " at " << at;
      } catch (const Error&) {
      }
      try {
        unpacked(good.substr(0, at), "d/f");
        ADD_FAILURE() << "an archive cut off at " << at << " was read";
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace millrace
