#include "formats/gguf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "formats/gguf_writer.h"
#include "scratch.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GgufContents read_gguf_text(const std::string& file) { return read_gguf(bytes_of(file), "x.gguf"); }
std::string gguf_error(const std::string& file) {
  return message_of([&] { read_gguf_text(file); });
}

std::string entry(std::string_view key, GgufType type, const std::string& value) {
  return gguf_string(key) + raw(static_cast<uint32_t>(type)) + value;
}

struct Tensor {
  std::string name = "t";
  std::vector<uint64_t> dims{8};  // innermost first, as in the file
  uint32_t type = 0;
  uint64_t offset = 0;
};

std::string encode(const Tensor& tensor) {
  std::string out = gguf_string(tensor.name) + raw(static_cast<uint32_t>(tensor.dims.size()));
  for (const uint64_t dim : tensor.dims) out += raw(dim);
  return out + raw(tensor.type) + raw(tensor.offset);
}

std::string file_with(std::initializer_list<Tensor> tensors, size_t data_bytes, const std::string& entries = "",
                      uint64_t entry_count = 0) {
  std::string out = gguf_header(tensors.size(), entry_count) + entries;
  for (const Tensor& tensor : tensors) out += encode(tensor);
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(data_bytes, 'x');
}

TEST(GgufReader, EveryMetadataTypeOfPyPiGgufIsRead) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  const GgufContents contents = read_gguf_text(file);
  const GgufMetadata& m = contents.metadata;
  EXPECT_EQ(m.string("general.architecture"), "llama");
  EXPECT_EQ(m.integer("test.u8"), 200);
  EXPECT_EQ(m.integer("test.i8"), -100);
  EXPECT_EQ(m.integer("test.u16"), 60000);
  EXPECT_EQ(m.integer("test.i16"), -30000);
  EXPECT_EQ(m.integer("test.u32"), 4'000'000'000);
  EXPECT_EQ(m.integer("test.i32"), -2'000'000'000);
  EXPECT_EQ(m.integer("test.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(m.number("test.f32"), 0.5);
  EXPECT_EQ(m.number("test.f64"), 1e300);
  EXPECT_EQ(m.number("test.u64"), 0x1p64);
  EXPECT_EQ(m.boolean("test.bool"), true);
  EXPECT_EQ(m.string("test.string"), "Größe \U0001f600");
  EXPECT_THAT(*m.strings("test.strings"), ElementsAre("", "a", "bc", "\n"));
  EXPECT_THAT(*m.integers("test.i32s"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*m.integers("test.u8s"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(*m.numbers("test.f32s"), ElementsAre(0.5, -1.5));
  EXPECT_EQ(m.find("test.bools")->elements().size(), 3u);
  EXPECT_EQ(m.integer("absent"), std::nullopt);
  const auto nested = m.find("test.nested")->elements();
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_THAT(*nested[0].integers(), ElementsAre(1, 2));
  EXPECT_THAT(*nested[1].integers(), ElementsAre(3));
}

TEST(GgufReader, AWrongKindNamesFileAndKey) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  const GgufContents contents = read_gguf_text(file);
  EXPECT_THAT(message_of([&] { contents.metadata.integer("test.string"); }),
              HasSubstr("x.gguf: 'test.string' should be an integer, the file has string"));
  EXPECT_THAT(message_of([&] { contents.metadata.integer("test.u64"); }), HasSubstr("test.u64"));  // beyond int64
  EXPECT_THAT(message_of([&] { contents.metadata.strings("test.i32s"); }), HasSubstr("an array of strings"));
  EXPECT_THAT(message_of([&] { contents.metadata.integers("test.f32s"); }), HasSubstr("an array of integers"));
}

TEST(GgufReader, TensorsHaveShapesOutermostFirstAndTheirBytes) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  const GgufContents contents = read_gguf_text(file);
  ASSERT_EQ(contents.tensors.size(), 19u);
  const TensorInfo& f16 = contents.tensors[1];
  EXPECT_EQ(f16.name, "f16");
  EXPECT_THAT(f16.shape, ElementsAre(2, 3, 4));
  EXPECT_EQ(f16.bytes, 48u);
  EXPECT_EQ(f16.dtype, DType::F16);
  for (const TensorInfo& tensor : contents.tensors) {
    EXPECT_GE(tensor.data, bytes_of(file).data());
    EXPECT_LE(tensor.data + tensor.bytes, bytes_of(file).data() + file.size());
    if (tensor.dtype && is_quantized(*tensor.dtype)) {
      EXPECT_THAT(tensor.shape, ElementsAre(3, 2 * info(*tensor.dtype).block)) << tensor.name;
      EXPECT_EQ(tensor.bytes, 6u * static_cast<size_t>(info(*tensor.dtype).bytes)) << tensor.name;
    }
  }
  float first = 0;
  std::memcpy(&first, contents.tensors[0].data + 4, 4);
  EXPECT_EQ(first, 1.0f / 8 - 2);
}

TEST(GgufReader, FormatsThatCannotBeRunAreListedByName) {
  const std::string file = read_whole(test_data("all_types.gguf"));
  for (const TensorInfo& tensor : read_gguf_text(file).tensors) {
    if (tensor.name == "iq2_xxs" || tensor.name == "i32") {
      EXPECT_FALSE(tensor.dtype.has_value());
      EXPECT_GT(tensor.bytes, 0u);
    } else {
      EXPECT_TRUE(tensor.dtype.has_value()) << tensor.name;
    }
  }
  EXPECT_EQ(read_gguf_text(file_with({{.type = 200}}, 64)).tensors[0].dtype_name, "type 200");
}

TEST(GgufReader, OtherFilesAndVersionsAreRefusedClearly) {
  EXPECT_THAT(gguf_error(""), HasSubstr("ends inside the header"));
  EXPECT_THAT(gguf_error("PK\x03\x04 something else entirely"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(gguf_error(gguf_header(0, 0, __builtin_bswap32(3))), HasSubstr("big-endian"));
  EXPECT_THAT(gguf_error(gguf_header(0, 0, 1)), HasSubstr("version 1"));
  EXPECT_THAT(gguf_error(gguf_header(0, 0, 4)), HasSubstr("version 4"));
  EXPECT_NO_THROW(read_gguf_text(gguf_header(0, 0, 2)));
  EXPECT_NO_THROW(read_gguf_text(gguf_header(0, 0, 3)));
}

TEST(GgufReader, CountsThatTheFileHasNoBytesForAreRefusedBeforeAnythingIsReserved) {
  EXPECT_THAT(gguf_error(gguf_header(uint64_t{1} << 60, 0)), HasSubstr("number of tensors"));
  EXPECT_THAT(gguf_error(gguf_header(0, UINT64_MAX)), HasSubstr("number of metadata entries"));
  const auto with_array = [](uint32_t element, uint64_t count) {
    return gguf_header(0, 1) + entry("k", GgufType::Array, raw(element) + raw(count)) + std::string(64, '\0');
  };
  for (const uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
    EXPECT_THAT(gguf_error(with_array(element, UINT64_MAX / 4)), HasSubstr("number of array elements")) << element;
  }
  EXPECT_THAT(gguf_error(gguf_header(0, 1) + entry("k", GgufType::String, raw(UINT64_MAX)) + "abc"),
              HasSubstr("a string"));
}

TEST(GgufReader, BadMetadataIsRefused) {
  const std::string one = entry("k", GgufType::U8, "\x01");
  EXPECT_THAT(gguf_error(gguf_header(0, 2) + one + one), HasSubstr("'k' appears twice"));
  EXPECT_THAT(gguf_error(gguf_header(0, 1) + entry("k", static_cast<GgufType>(13), "abcdefgh")),
              HasSubstr("unknown type 13"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += raw<uint32_t>(9) + raw<uint64_t>(1);
  EXPECT_THAT(gguf_error(gguf_header(0, 1) + entry("k", GgufType::Array, deep)), HasSubstr("deeper"));
  EXPECT_THAT(gguf_error(gguf_header(0, 1) + raw<uint64_t>(5000) + std::string(6000, 'k')),
              HasSubstr("a metadata key"));
}

TEST(GgufReader, ImpossibleTensorsAreRefused) {
  EXPECT_THAT(gguf_error(file_with({{.dims = {uint64_t{1} << 40, uint64_t{1} << 40}}}, 64)),
              HasSubstr("impossible shape"));
  EXPECT_THAT(gguf_error(file_with({{.dims = {UINT64_MAX}}}, 64)), HasSubstr("impossible shape"));
  EXPECT_THAT(gguf_error(file_with({{.dims = {1, 1, 1, 1, 1}}}, 64)), HasSubstr("5 dimensions"));
  EXPECT_THAT(gguf_error(file_with({{.dims = {0, uint64_t{1} << 40, uint64_t{1} << 40}}}, 64)),
              HasSubstr("impossible"));
  EXPECT_THAT(gguf_error(file_with({{.dims = {33}, .type = 8}}, 64)), HasSubstr("not a multiple"));
  EXPECT_THAT(gguf_error(file_with({{.offset = 64}}, 64)), HasSubstr("truncated"));
  EXPECT_THAT(gguf_error(file_with({{.offset = UINT64_MAX / 32 * 32}}, 64)), HasSubstr("truncated"));
  EXPECT_THAT(gguf_error(file_with({{.dims = {17}}}, 64)), HasSubstr("truncated"));
  EXPECT_THAT(gguf_error(file_with({{.offset = 8}}, 64)), HasSubstr("not aligned to 32"));
  EXPECT_THAT(gguf_error(file_with({{.name = "a"}, {.name = "a"}}, 64)), HasSubstr("'a' appears twice"));
  EXPECT_NO_THROW(read_gguf_text(file_with({{.dims = {16}}}, 64)));
}

TEST(GgufReader, TensorsThatOverlapAreRefused) {
  EXPECT_THAT(gguf_error(file_with({{.name = "b"}, {.name = "a"}}, 64)), HasSubstr("overlap"));
  EXPECT_THAT(gguf_error(file_with({{.name = "b", .offset = 32}, {.name = "a", .dims = {9}}}, 64)),
              HasSubstr("'a' and 'b' overlap"));
  EXPECT_NO_THROW(read_gguf_text(file_with({{.name = "b", .offset = 32}, {.name = "a"}}, 64)));
  EXPECT_NO_THROW(
      read_gguf_text(file_with({{.name = "a", .dims = {0}}, {.name = "b"}, {.name = "c", .type = 200}}, 64)));
}

TEST(GgufReader, AlignmentComesFromTheFile) {
  const auto aligned = [](uint32_t alignment, uint64_t offset) {
    return file_with({{.offset = offset}}, 1024, entry("general.alignment", GgufType::U32, raw(alignment)), 1);
  };
  EXPECT_NO_THROW(read_gguf_text(aligned(8, 8)));
  EXPECT_THAT(gguf_error(aligned(64, 32)), HasSubstr("not aligned to 64"));
  EXPECT_THAT(gguf_error(aligned(0, 0)), HasSubstr("power of two"));
  EXPECT_THAT(gguf_error(aligned(24, 0)), HasSubstr("power of two"));
}

TEST(GgufReader, AVocabularyOf256kIsReadInNoTime) {
  std::string strings = raw<uint32_t>(8) + raw<uint64_t>(256 * 1024);
  for (int i = 0; i < 256 * 1024; ++i) strings += gguf_string("token" + std::to_string(i));
  const std::string file = gguf_header(0, 1) + entry("tokenizer.ggml.tokens", GgufType::Array, strings);
  const auto begin = std::chrono::steady_clock::now();
  const GgufContents contents = read_gguf_text(file);
  const auto tokens = *contents.metadata.strings("tokenizer.ggml.tokens");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  ASSERT_EQ(tokens.size(), 256u * 1024);
  EXPECT_EQ(tokens[262143], "token262143");
  EXPECT_GE(tokens[5].data(), file.data());  // a view, not a copy
}

}  // namespace
}  // namespace millrace
