#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

std::vector<TensorInfo> read_safetensors_text(const std::string& file) {
  return read_safetensors(bytes_of(file), "x.safetensors");
}
std::string safetensors_error(const std::string& json, const std::string& data = "") {
  return message_of([&] { read_safetensors_text(safetensors_file(json, data)); });
}

const TensorInfo& named(const std::vector<TensorInfo>& tensors, const std::string& name) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

TEST(Safetensors, AFileOfTheFormatsOwnLibraryIsRead) {
  const std::string file = read_whole(test_data("plain.safetensors"));
  const auto tensors = read_safetensors_text(file);
  ASSERT_EQ(tensors.size(), 4u);
  const TensorInfo& f32 = named(tensors, "f32");
  EXPECT_EQ(f32.dtype, DType::F32);
  EXPECT_THAT(f32.shape, ElementsAre(3, 4));
  float value = 0;
  std::memcpy(&value, f32.data + 11 * sizeof(float), sizeof(float));
  EXPECT_EQ(value, 11.0f / 8 - 2);
  EXPECT_EQ(named(tensors, "f16").dtype, DType::F16);
  EXPECT_EQ(named(tensors, "empty").bytes, 0u);
  EXPECT_FALSE(named(tensors, "buffer").dtype.has_value());
  EXPECT_EQ(named(tensors, "buffer").dtype_name, "I64");
}

TEST(Safetensors, Bf16AndMetadataAreUnderstood) {
  const std::string file = safetensors_file(
      R"({"__metadata__":{"format":"pt","n":"1"},"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[1,5]}}  )",
      "xABCDyy");
  const auto tensors = read_safetensors_text(file);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].dtype, DType::BF16);
  EXPECT_EQ(tensors[0].data[0], std::byte{'A'});
}

TEST(Safetensors, HeadersThatDoNotFitAreRefused) {
  EXPECT_THAT(message_of([] { read_safetensors_text(""); }), HasSubstr("header's length"));
  EXPECT_THAT(message_of([] { read_safetensors_text(raw<uint64_t>(0)); }), HasSubstr("no JSON header"));
  EXPECT_THAT(message_of([] { read_safetensors_text(raw<uint64_t>(100) + "{}"); }), HasSubstr("truncated"));
  EXPECT_THAT(message_of([] { read_safetensors_text(raw<uint64_t>(UINT64_MAX) + "{}"); }),
              HasSubstr("not a safetensors file"));
  EXPECT_THAT(message_of([] { read_safetensors_text(raw<uint64_t>(100'000'001) + "{}"); }),
              HasSubstr("not a safetensors file"));
  EXPECT_THAT(safetensors_error("[]"), HasSubstr("no JSON header"));
  EXPECT_THAT(safetensors_error(R"({"a":)"), HasSubstr("not valid JSON"));
  EXPECT_THAT(safetensors_error("{}x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(safetensors_error("{\"a\x01"), EndsWith("the header is not valid JSON from byte 4 on"));
}

TEST(Safetensors, TensorsThatDoNotFitAreRefused) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return safetensors_error(
        R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", "12345678");
  };
  EXPECT_THAT(one("F32", "[2]", "[4,12]"), HasSubstr("truncated"));
  EXPECT_THAT(one("F32", "[2]", "[8,0]"), HasSubstr("[8, 0)"));
  EXPECT_THAT(one("F32", "[3]", "[0,8]"), HasSubstr("does not take 8 bytes"));
  EXPECT_THAT(one("F16", "[2]", "[0,8]"), HasSubstr("does not take 8 bytes"));
  EXPECT_THAT(one("F32", "[4611686018427387904,4]", "[0,0]"), HasSubstr("does not take"));
  EXPECT_THAT(one("F32", "[-1]", "[0,8]"), HasSubstr("negative"));
  EXPECT_THAT(one("F32", "[2.0]", "[0,8]"), HasSubstr("a fraction"));
  EXPECT_THAT(one("F32", "[18446744073709551615]", "[0,8]"), HasSubstr("too large"));
  EXPECT_THAT(one("F32", "[1,1,1,1,1,1,1,1,1,1,2]", "[0,8]"), HasSubstr("too long"));
  EXPECT_THAT(one("Q9", "[2]", "[0,8]"), HasSubstr("unknown dtype 'Q9'"));
  EXPECT_THAT(one("F32", "[2]", "[0,8,8]"), HasSubstr("no dtype or data_offsets"));
}

TEST(Safetensors, TensorsThatOverlapAreRefused) {
  const auto two = [](const std::string& offsets) {
    return safetensors_file(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[2,6]},)"
                            R"("b":{"dtype":"F16","shape":[1],"data_offsets":)" +
                                offsets + "}}",
                            "12345678");
  };
  for (const char* offsets : {"[2,4]", "[4,6]", "[3,5]"})
    EXPECT_THAT(message_of([&] { read_safetensors_text(two(offsets)); }), HasSubstr("overlap")) << offsets;
  for (const char* offsets : {"[0,2]", "[6,8]"}) EXPECT_NO_THROW(read_safetensors_text(two(offsets))) << offsets;
}

TEST(Safetensors, HeadersOfAnotherFormAreRefused) {
  EXPECT_THAT(safetensors_error(R"({"a":1})"), HasSubstr("outside a list"));
  EXPECT_THAT(safetensors_error(R"({"a":{"dtype":"F32","shape":[2]}})"), HasSubstr("no dtype or data_offsets"));
  EXPECT_THAT(safetensors_error(R"({"a":{}})"), HasSubstr("'a'"));
  EXPECT_THAT(
      safetensors_error(
          R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
          "1"),
      HasSubstr("second entry"));
  EXPECT_THAT(safetensors_error(R"({"a":{"shape":[1],"shape":[1]}})"), HasSubstr("given twice"));
  EXPECT_THAT(safetensors_error(R"({"a":{"shape":[[1]]}})"), HasSubstr("list in the wrong place"));
  EXPECT_THAT(safetensors_error(R"({"a":{"more":[1]}})"), HasSubstr("unknown field 'more'"));
  EXPECT_THAT(safetensors_error(R"({"a":{"x":{"y":1}}})"), HasSubstr("object inside"));
  EXPECT_THAT(safetensors_error(R"({"a":{"dtype":null}})"), HasSubstr("null"));
  EXPECT_THAT(safetensors_error("{\"a\":" + std::string(100'000, '[')), HasSubstr("list in the wrong place"));
  EXPECT_THAT(safetensors_error(R"({"a":"text"})"), HasSubstr("text in the wrong place"));
}

}  // namespace
}  // namespace millrace
