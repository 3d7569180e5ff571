#include "engine/park_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/log.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct ParkHeader {  // little endian, as are the state's numbers
  std::array<char, 8> magic{'M', 'R', 'P', 'A', 'R', 'K', '1', '\n'};
  uint32_t long_rope = 0;
  uint32_t tokens = 0;
  std::array<int32_t, 2> stops{};  // 0: none
  uint64_t state_bytes = 0;
  uint64_t sum = 0;  // of tokens and state
};

constexpr int64_t kMostTokens = int64_t(1) << 27;

// Finds damage, not tampering: whoever can write to the folder can write any state.
uint64_t check_sum(uint64_t sum, const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (; bytes > 0;) {
    uint64_t word = 0;
    const size_t count = std::min(bytes, sizeof word);
    std::memcpy(&word, at, count);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
    at += count;
    bytes -= count;
  }
  return sum;
}

uint64_t sum_of(const std::vector<int32_t>& tokens, const std::vector<std::byte>& state) {
  const uint64_t sum = check_sum(tokens.size(), tokens.data(), tokens.size() * sizeof(int32_t));
  return check_sum(sum, state.data(), state.size());
}

int64_t file_bytes(const ParkHeader& header) {
  return static_cast<int64_t>(sizeof header + header.tokens * sizeof(int32_t) + header.state_bytes);
}

// Reads the header and the tokens. False: this is no whole file of this format.
bool read_beginning(std::ifstream& in, int64_t size, ParkHeader& header, std::vector<int32_t>& tokens) {
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) || header.magic != ParkHeader().magic) return false;
  if (header.tokens == 0 || header.tokens > kMostTokens || header.state_bytes > static_cast<uint64_t>(size) ||
      file_bytes(header) != size)
    return false;
  tokens.resize(header.tokens);
  const auto bytes = static_cast<std::streamsize>(tokens.size() * sizeof(int32_t));
  return static_cast<bool>(in.read(reinterpret_cast<char*>(tokens.data()), bytes));
}

std::vector<int32_t> stops_of(const ParkHeader& header) {
  std::vector<int32_t> stops;
  for (const int32_t stop : header.stops) {
    if (stop > 0) stops.push_back(stop);
  }
  return stops;
}

double age_of(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error) return 0;
  return std::max(0.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count());
}

int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

}  // namespace

ParkFolder::ParkFolder(const fs::path& folder, const std::string& mark) : folder_(folder / mark) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail(ErrorKind::Io, "cannot make the folder {}: {}", folder_.string(), error.message());
  fs::permissions(folder_, fs::perms::owner_all, error);  // the files hold conversations
  if (::access(folder_.c_str(), R_OK | W_OK | X_OK) != 0) fail_errno("cannot use the folder " + folder_.string());
}

std::vector<ParkFolder::File> ParkFolder::find() const {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    File file;
    file.path = at->path();
    const std::string extension = file.path.extension();
    if (extension != ".park" && extension != ".part") continue;
    file.bytes = size_of(file.path);
    file.age = age_of(file.path);
    std::ifstream in(file.path, std::ios::binary);
    ParkHeader header;
    if (extension == ".park" && read_beginning(in, file.bytes, header, file.tokens)) {
      file.long_rope = header.long_rope != 0;
      file.stops = stops_of(header);
      files.push_back(std::move(file));
      continue;
    }
    log().warn("{}: is no whole state of a session and is removed", file.path.string());
    remove(file);
  }
  std::ranges::sort(files, std::ranges::greater(), &File::age);
  return files;
}

ParkFolder::File ParkFolder::write(bool long_rope, const std::vector<int32_t>& tokens, const SavedPrefix& saved) {
  ParkHeader header;
  header.long_rope = long_rope ? 1 : 0;
  header.tokens = static_cast<uint32_t>(tokens.size());
  std::copy_n(saved.stops.begin(), std::min(saved.stops.size(), header.stops.size()), header.stops.begin());
  header.state_bytes = saved.pages.size();
  header.sum = sum_of(tokens, saved.pages);
  const std::string name = fmt::format("{:016x}-{}-{}", header.sum, ::getpid(), ++written_);
  const fs::path part = folder_ / (name + ".part"), path = folder_ / (name + ".park");
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  const auto put = [&](const void* data, size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  put(&header, sizeof header);
  put(tokens.data(), tokens.size() * sizeof(int32_t));
  put(saved.pages.data(), saved.pages.size());
  out.close();
  std::error_code error;
  if (out) fs::rename(part, path, error);
  if (!out || error) {
    const std::string why = error ? error.message() : std::string(std::strerror(errno));
    fs::remove(part, error);
    fail(ErrorKind::Io, "cannot write {}: {}", path.string(), why);
  }
  return {path, long_rope, tokens, stops_of(header), file_bytes(header)};
}

std::optional<SavedPrefix> ParkFolder::read(const File& file) const {
  std::ifstream in(file.path, std::ios::binary);
  ParkHeader header;
  std::vector<int32_t> tokens;
  SavedPrefix saved;
  bool whole = read_beginning(in, size_of(file.path), header, tokens) && tokens == file.tokens;
  if (whole) {
    saved.tokens = static_cast<int32_t>(tokens.size());
    saved.stops = stops_of(header);
    saved.pages.resize(header.state_bytes);
    in.read(reinterpret_cast<char*>(saved.pages.data()), static_cast<std::streamsize>(saved.pages.size()));
    whole = static_cast<bool>(in) && sum_of(tokens, saved.pages) == header.sum;
  }
  if (whole) return saved;
  log().warn("{}: the state of a session is missing or damaged; it is computed again", file.path.string());
  return std::nullopt;
}

void ParkFolder::remove(const File& file) {
  std::error_code error;
  fs::remove(file.path, error);
}

}  // namespace millrace
