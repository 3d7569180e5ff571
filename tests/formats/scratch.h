// Test files: a temporary folder, and handmade GGUF and safetensors bytes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace millrace {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, std::string_view contents) const {
    std::ofstream(path_ / name, std::ios::binary) << contents;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path test_data(const std::string& name) {
  return std::filesystem::path(MILLRACE_TEST_DATA) / "formats" / name;
}

inline std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

// A GGUF string, a GGUF header, and a safetensors file from its JSON and data.
inline std::string gguf_string(std::string_view text) { return raw<uint64_t>(text.size()) + std::string(text); }
inline std::string gguf_header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(entries);
}
inline std::string safetensors_file(std::string_view json, std::string_view data = "") {
  return raw<uint64_t>(json.size()) + std::string(json) + std::string(data);
}

// The message of the error; fails the test if there is none.
template <class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace millrace
