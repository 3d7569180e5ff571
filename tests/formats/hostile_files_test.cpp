// A file damaged in any way is either refused with an error or read; it never crashes the process. The debug build runs
// this under sanitizers.
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf_reader.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"
#include "fresh_seed.h"
#include "scratch.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Accesses everything the file offers.
void use(const GgufMetadata& metadata) {
  for (const auto& entry : metadata.entries()) {
    if (!entry.value.is_array()) {
      (void)entry.value.number();
      (void)entry.value.string();
      continue;
    }
    (void)entry.value.strings();
    (void)entry.value.numbers();
    (void)entry.value.integers();
    (void)entry.value.elements();
  }
  const Config config = Config::from_gguf(metadata);
  try {
    (void)config.integer({.gguf = "block_count"});
    (void)config.number({.gguf = "rope.freq_base"});
  } catch (const Error&) {
  }
}

void use(const std::vector<TensorInfo>& tensors) {
  unsigned sum = 0;
  for (const TensorInfo& tensor : tensors) {
    for (size_t i = 0; i < tensor.bytes; i += 64) sum += static_cast<unsigned>(tensor.data[i]);
    if (tensor.bytes > 0) sum += static_cast<unsigned>(tensor.data[tensor.bytes - 1]);
  }
  volatile unsigned sink = sum;
  (void)sink;
}

bool survives_gguf(std::string_view file) {
  // A copy of exactly this size, so that sanitizers see reads beyond it.
  const std::vector<char> copy(file.begin(), file.end());
  try {
    const GgufContents contents = read_gguf(std::as_bytes(std::span(copy)), "hostile.gguf");
    use(contents.metadata);
    use(contents.tensors);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool survives_safetensors(std::string_view file) {
  const std::vector<char> copy(file.begin(), file.end());
  try {
    use(read_safetensors(std::as_bytes(std::span(copy)), "hostile.safetensors"));
    return true;
  } catch (const Error&) {
    return false;
  }
}

using Reader = bool (*)(std::string_view);
struct Victim {
  const char* name;
  const char* file;
  Reader read;
};

class Hostile : public testing::TestWithParam<Victim> {
 protected:
  const std::string file_ = read_whole(test_data(GetParam().file));
  const Reader read_ = GetParam().read;
};

TEST_P(Hostile, TheFileItselfIsRead) { EXPECT_TRUE(read_(file_)); }

TEST_P(Hostile, CutAnywhereItIsRefused) {
  int read = 0;
  for (size_t length = 0; length < file_.size(); length += length < 3000 ? 1 : 37) {
    read += read_(std::string_view(file_).substr(0, length)) ? 1 : 0;
  }
  EXPECT_LE(read, 32);  // only damage in the padding after the last tensor may stay unnoticed
}

TEST_P(Hostile, EveryByteDamagedInTurn) {
  for (size_t i = 0; i < std::min<size_t>(file_.size(), 3000); ++i) {
    for (const char value : {'\0', '\xff', static_cast<char>(file_[i] ^ 1), static_cast<char>(file_[i] ^ 0x80)}) {
      std::string damaged = file_;
      damaged[i] = value;
      read_(damaged);
    }
  }
}

TEST_P(Hostile, EveryWordMadeHuge) {
  for (size_t i = 0; i + 8 <= std::min<size_t>(file_.size(), 3000); ++i) {
    for (const uint64_t value : {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{0x7fffffffffffffff}}) {
      std::string damaged = file_;
      std::memcpy(damaged.data() + i, &value, 8);
      read_(damaged);
    }
  }
}

TEST_P(Hostile, RandomDamage) {
  const auto seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = file_;
    for (int hits = 1 + static_cast<int>(random() % 8); hits > 0; --hits) {
      damaged[random() % std::min<size_t>(damaged.size(), 3000)] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.erase(random() % damaged.size(), random() % 64);
    read_(damaged);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Hostile,
                         testing::Values(Victim{"gguf", "all_types.gguf", survives_gguf},
                                         Victim{"split", "split-00001-of-00003.gguf", survives_gguf},
                                         Victim{"safetensors", "plain.safetensors", survives_safetensors}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace millrace
