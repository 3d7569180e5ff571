// Mixtures in GGUF files as they are found: one tensor for each expert, and formats that differ within a layer.
#include "models/mixture_files.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace millrace {
namespace {

using Rows = std::vector<std::vector<float>>;

const std::vector<int32_t> kFileTokens{3, 141, 59, 265, 358, 97, 93, 238, 46, 264, 338, 327};

Rows file_logits(const std::string& path, bool exact = true) {
  const auto runner =
      load(path, {.threads = 2, .exact = exact, .context = 64, .rows = 16, .logit_rows = 16, .block_size = 16});
  return all_logits(*runner, kFileTokens, 12);
}

// The file in its own formats gives the logits of a file with the same values in f32.
void expect_right(MixtureForm form) {
  MixtureFiles files;
  const std::string path = files.write(form);
  form.widened = true;
  const Rows expected = file_logits(files.write(form));
  EXPECT_LT(rms_distance(file_logits(path), expected), 1e-5);
  // Fast kernels round, and a row whose router has a near tie then chooses other experts.
  EXPECT_LT(rms_distance(file_logits(path, false), expected), 0.6);
}

TEST(MixtureFiles, OneTensorForEachExpert) {
  for (const DType format : {DType::F16, DType::Q4_K}) {
    MixtureForm form{[&](const std::string&) { return format; }};
    MixtureFiles files;
    const Rows expected = file_logits(files.write(form));
    form.one_tensor_per_expert = true;
    EXPECT_EQ(file_logits(files.write(form)), expected);
    expect_right(form);
  }
}

TEST(MixtureFiles, LayersOfDifferentFormats) {
  expect_right({[](const std::string& name) {
    const bool first = name.starts_with("blk.0.");
    if (name.find("ffn_down") != std::string::npos) return first ? DType::Q6_K : DType::Q4_K;
    if (name.find("attn_v") != std::string::npos) return first ? DType::Q6_K : DType::Q8_0;
    if (name.find("attn_k") != std::string::npos) return DType::Q5_0;
    if (name.find("attn_q") != std::string::npos) return first ? DType::F16 : DType::Q4_K;
    return DType::Q4_K;
  }});
}

TEST(MixtureFiles, GateAndUpOfDifferentFormats) {
  expect_right(
      {[](const std::string& name) { return name.find("ffn_up") != std::string::npos ? DType::Q6_K : DType::Q4_K; }});
}

// Files of an early quantizer: it gave some experts of a layer more bits.
TEST(MixtureFiles, ExpertsOfOneLayerInDifferentFormats) {
  expect_right(
      {.format = [](const std::string& name) { return name.ends_with(".3.weight") ? DType::Q6_K : DType::Q4_K; },
       .one_tensor_per_expert = true});
}

TEST(MixtureFiles, MissingExpertsAreNamed) {
  MixtureFiles files;
  const auto path = files.write({.format = [](const std::string&) { return DType::F16; },
                                 .one_tensor_per_expert = true,
                                 .without = "blk.1.ffn_up.5.weight"});
  try {
    load(path, {.threads = 1, .context = 64});
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("blk.1.ffn_up.5.weight"));
  }
}

}  // namespace
}  // namespace millrace
