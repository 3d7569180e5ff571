#include "formats/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_reader.h"
#include "scratch.h"

namespace millrace {
namespace {

using testing::ElementsAre;

TEST(GgufWriter, WhatIsWrittenIsReadBack) {
  ScratchFolder scratch;
  const auto path = scratch.path() / "out.gguf";
  GgufMetadataBuilder metadata;
  metadata.add_string("general.architecture", "llama");
  metadata.add_u32("a", 7);
  metadata.add_f32("b", 0.25f);
  GgufWriter writer(path, metadata, {{"odd", DType::F32, {3}}, {"matrix", DType::Q8_0, {2, 64}}});
  const std::vector<float> odd{1, 2, 3};
  const std::vector<std::byte> matrix(2 * 2 * 34, std::byte{5});
  writer.write(std::as_bytes(std::span(odd)));
  writer.write(std::span(matrix).first(50));
  writer.write(std::span(matrix).subspan(50));
  EXPECT_FALSE(std::filesystem::exists(path));  // not before it is complete
  writer.finish();

  const std::string file = read_whole(path);
  const GgufContents contents = read_gguf(bytes_of(file), "out.gguf");
  EXPECT_EQ(contents.metadata.integer("a"), 7);
  EXPECT_EQ(contents.metadata.number("b"), 0.25);
  ASSERT_EQ(contents.tensors.size(), 2u);
  EXPECT_EQ(std::memcmp(contents.tensors[0].data, odd.data(), 12), 0);
  EXPECT_THAT(contents.tensors[1].shape, ElementsAre(2, 64));
  EXPECT_EQ(std::memcmp(contents.tensors[1].data, matrix.data(), matrix.size()), 0);
}

TEST(GgufWriter, CopiesEveryTypeOfMetadataUnchanged) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  const GgufContents original = read_gguf(bytes_of(file), "in");
  GgufMetadataBuilder metadata;
  for (const auto& entry : original.metadata.entries()) metadata.copy(entry);
  const std::string again = encode_gguf_header(metadata, {});
  const GgufContents copy = read_gguf(bytes_of(again), "copy");
  ASSERT_EQ(copy.metadata.entries().size(), original.metadata.entries().size());
  for (size_t i = 0; i < copy.metadata.entries().size(); ++i) {
    const auto& a = original.metadata.entries()[i];
    const auto& b = copy.metadata.entries()[i];
    EXPECT_EQ(a.key, b.key);
    EXPECT_EQ(a.value.type(), b.value.type());
    EXPECT_TRUE(std::ranges::equal(a.value.encoded(), b.value.encoded())) << a.key;
  }
}

TEST(GgufWriter, AnUnfinishedFileLeavesNothingBehind) {
  ScratchFolder scratch;
  { const GgufWriter writer(scratch.path() / "out.gguf", {}, {{"t", DType::F32, {3}}}); }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(GgufWriter, APlaceThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(GgufWriter("/nonexistent-folder/out.gguf", {}, {}), Error);
}

}  // namespace
}  // namespace millrace
