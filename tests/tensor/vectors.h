// Reads the records of tests/data/tensor/*.bin.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace millrace {

struct VectorRecord {
  std::string name;
  std::vector<std::byte> blocks;
  std::vector<float> numbers;
};

inline std::vector<VectorRecord> read_vectors(const std::string& file_name) {
  const MappedFile file(std::filesystem::path(MILLRACE_TEST_DATA) / "tensor" / file_name);
  std::vector<VectorRecord> records;
  auto rest = file.bytes();
  const auto take = [&](void* to, size_t bytes) {
    if (bytes > rest.size()) throw std::runtime_error(file_name + " is truncated");
    if (bytes > 0) std::memcpy(to, rest.data(), bytes);
    rest = rest.subspan(bytes);
  };
  while (!rest.empty()) {
    char name[17] = {};
    uint32_t blocks = 0, numbers = 0;
    take(name, 16);
    take(&blocks, sizeof(blocks));
    take(&numbers, sizeof(numbers));
    VectorRecord& record = records.emplace_back();
    record.name = name;
    record.blocks.resize(blocks);
    record.numbers.resize(numbers);
    take(record.blocks.data(), blocks);
    take(record.numbers.data(), numbers * sizeof(float));
  }
  return records;
}

}  // namespace millrace
