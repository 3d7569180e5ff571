#include "formats/gguf_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_writer.h"
#include "scratch.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::filesystem::path& path) {
  return message_of([&] { open_gguf(path); });
}

class SplitGguf : public testing::Test {
 protected:
  std::string part(int i) const { return "split-0000" + std::to_string(i) + "-of-00003.gguf"; }
  void copy(int from, int to) { std::filesystem::copy_file(test_data(part(from)), scratch_.path() / part(to)); }
  ScratchFolder scratch_;
};

TEST_F(SplitGguf, AnyPartOpensAll) {
  for (int i = 1; i <= 3; ++i) {
    const auto source = open_gguf(test_data(part(i)));
    ASSERT_EQ(source->tensors().size(), 5u);
    for (int t = 0; t < 5; ++t) {
      const WeightView view = source->tensor("tensor." + std::to_string(t), {2, 4});
      EXPECT_EQ(*reinterpret_cast<const float*>(view.data), -2.0f + static_cast<float>(t));
    }
    EXPECT_EQ(source->config().integer({.gguf = "block_count"}), 2);
  }
}

TEST_F(SplitGguf, AMissingPartIsNamed) {
  copy(1, 1);
  copy(3, 3);
  EXPECT_THAT(error_of(scratch_.path() / part(1)), HasSubstr(part(2)));
}

TEST_F(SplitGguf, MixedUpPartsAreRefused) {
  copy(1, 1);
  copy(3, 2);
  copy(2, 3);
  EXPECT_THAT(error_of(scratch_.path() / part(1)), HasSubstr("mixed up"));
}

TEST_F(SplitGguf, ASecondPartInPlaceOfTheFirstIsRefused) {
  copy(2, 1);
  EXPECT_THAT(error_of(scratch_.path() / part(1)), HasSubstr("where the first was expected"));
}

TEST_F(SplitGguf, ARenamedPartIsRefused) {
  std::filesystem::copy_file(test_data(part(1)), scratch_.path() / "model.gguf");
  EXPECT_THAT(error_of(scratch_.path() / "model.gguf"), HasSubstr("-00001-of-00003.gguf"));
  std::filesystem::copy_file(test_data(part(1)), scratch_.path() / "model-00001-of-00007.gguf");
  EXPECT_THAT(error_of(scratch_.path() / "model-00001-of-00007.gguf"), HasSubstr("the name says 7"));
}

TEST(GgufSource, TensorsAreAskedForByNameAndShape) {
  const auto source = open_gguf(test_data("all_types.gguf"));
  const WeightView f32 = source->tensor("f32", {3, 4});
  EXPECT_EQ(f32.rows, 3);
  EXPECT_EQ(f32.cols, 4);
  EXPECT_EQ(reinterpret_cast<const float*>(f32.row(2))[3], 11.0f / 8 - 2);
  const WeightView vector = source->tensor("vector", {5});
  EXPECT_EQ(vector.rows, 1);
  EXPECT_EQ(vector.cols, 5);
  EXPECT_NO_THROW(source->tensor("vector", {1, 5}));
  const WeightView folded = source->tensor("f16", {2, 3, 4});
  EXPECT_EQ(folded.rows, 6);

  EXPECT_THAT(message_of([&] {
                source->tensor("f32", {4, 3});
              }),
              HasSubstr("'f32' should be [4, 3], the file has [3, 4]"));
  EXPECT_THAT(message_of([&] { source->tensor("f16", {6, 4}); }), HasSubstr("[6, 4]"));
  EXPECT_THAT(message_of([&] { source->tensor("nope", {1}); }), HasSubstr("'nope' is missing"));
  EXPECT_THAT(message_of([&] { source->tensor("i32", {2, 3}); }), HasSubstr("is in I32, which cannot be run"));
  EXPECT_THAT(message_of([&] { source->tensor("iq2_xxs", {3, 512}); }), HasSubstr("IQ2_XXS"));
  EXPECT_THAT(message_of([&] { source->tensor("f32", {4, 3}); }), HasSubstr("all_types.gguf"));
}

TEST(GgufSource, ReleasedPagesCanStillBeRead) {
  ScratchFolder scratch;
  const std::string path = (scratch.path() / "m.gguf").string();
  std::vector<float> numbers(100'000, 1.5f);
  GgufWriter writer(path, {}, {{"t", DType::F32, {100'000}}});
  writer.write(std::as_bytes(std::span(numbers)));
  writer.finish();
  const auto source = open_gguf(path);
  const WeightView view = source->tensor("t", {100'000});
  source->release(view);
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), reinterpret_cast<const float*>(view.data)));
}

TEST(GgufSource, ATensorAtAnOddAddressIsReadable) {
  // An alignment of one is legal, and floats may then be misaligned.
  std::string file = gguf_header(1, 1) + gguf_string("general.alignment") + raw<uint32_t>(4) + raw<uint32_t>(1);
  file += gguf_string(file.size() % 2 == 0 ? "tt" : "t");
  const std::string name = file.substr(file.find_last_not_of('t') + 1);
  file += raw<uint32_t>(1) + raw<uint64_t>(3) + raw<uint32_t>(0) + raw<uint64_t>(0);
  ASSERT_NE(file.size() % 4, 0u);
  file += raw(1.0f) + raw(2.0f) + raw(3.0f);
  ScratchFolder scratch;
  const auto source = open_gguf(scratch.write("odd.gguf", file));
  const WeightView view = source->tensor(name, {3});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
  EXPECT_THAT(std::span(reinterpret_cast<const float*>(view.data), 3), ElementsAre(1.0f, 2.0f, 3.0f));
  EXPECT_EQ(source->tensor(name, {3}).data, view.data);  // copied once
}

TEST(OpenWeights, SaysWhatIsWrongWithAPath) {
  ScratchFolder scratch;
  const auto error = [&](const std::string& path) { return message_of([&] { open_weights(path); }); };
  EXPECT_THAT(error((scratch.path() / "nothing").string()), HasSubstr("no such file"));
  EXPECT_THAT(error(scratch.path().string()), HasSubstr("no config.json"));
  EXPECT_THAT(error(scratch.write("x.safetensors", "")), HasSubstr("give the folder"));
  EXPECT_THAT(error(scratch.write("x.txt", "hello, this is text")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(error(scratch.write("empty.gguf", "")), HasSubstr("header"));
}

}  // namespace
}  // namespace millrace
