// Tests accepted and rejected fields of tokenizer.json, and the effect of tokenizer_config.json.
#include <gmock/gmock.h>

#include <thread>

#include "base/error.h"
#include "vectors.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

json small_tokenizer() {
  return json::parse(
      R"({"version": "1.0", "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "<s>": 4}, "merges": ["a b"]},
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "normalized": false}, {"id": 4, "content": "<s>", "special": true, "normalized": false},
                     {"id": 5, "content": "abba", "special": false, "normalized": false}]})");
}

std::string error_of(const std::string& text, const std::string& config = "") {
  try {
    tokenizer_from_json(text, config)->encode("ab 1\xff<s>");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerJson, AddedTokensAreFoundFirstAndSpecialOnesOnlyWhenWanted) {
  const auto tokenizer = tokenizer_from_json(small_tokenizer().dump(), "");
  EXPECT_EQ(tokenizer->encode("ab<s>abbab"), (Ids{3, 4, 5, 2}));
  EXPECT_EQ(tokenizer->encode("ab<s>abba", {.parse_special = false}), (Ids{3, 0, 0, 0, 5}));
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(tokenizer->token_text(5), "abba");
  EXPECT_EQ(tokenizer->token_text(77), "");
  EXPECT_EQ(tokenizer->id_of("abba"), 5);
  EXPECT_EQ(tokenizer->id_of("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_FALSE(tokenizer->is_special(5) || tokenizer->is_special(-1) || tokenizer->is_special(6));
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 99, -5, 5}), "ab abba");
}

TEST(TokenizerJson, SpecialTokensThatTouchContentArePlainText) {
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  for (const bool normalized : {false, true}) {
    json small = small_tokenizer();
    small["added_tokens"][1]["normalized"] = normalized;
    const auto tokenizer = tokenizer_from_json(small.dump(), "");
    const auto encode = [&](std::string_view text, const Ranges& content) {
      return tokenizer->encode(text, {.content = content});
    };
    EXPECT_EQ(encode("<s>a<s>b", {}), (Ids{4, 1, 4, 2}));
    EXPECT_EQ(encode("<s>a", {{3, 4}}), (Ids{4, 1}));
    EXPECT_EQ(encode("<s>a<s>b", {{0, 8}}), encode("<s>a<s>b", {{0, 3}, {4, 7}}));
    EXPECT_EQ(encode("<s>abba", {{0, 7}}), (Ids{0, 0, 0, 5}));  // other added tokens are not special
    if (normalized) continue;
    EXPECT_EQ(encode("<s>a<s>b", {{3, 7}}), (Ids{4, 1, 0, 0, 0, 2}));
    EXPECT_EQ(encode("<s><s>", {{2, 4}}), (Ids{0, 0, 0, 0, 0, 0}));  // the edges belong to both
    EXPECT_EQ(encode("<<s>", {{0, 1}}), (Ids{0, 4}));
  }
}

TEST(TokenizerJson, SpacesThatOneAddedTokenTookMakeNoSecond) {
  json spaces = small_tokenizer();
  spaces["added_tokens"].push_back({{"id", 6}, {"content", "  "}, {"lstrip", true}, {"rstrip", true}});
  spaces["added_tokens"].push_back({{"id", 7}, {"content", " "}, {"lstrip", true}});
  const auto tokenizer = tokenizer_from_json(spaces.dump(), "");
  EXPECT_EQ(tokenizer->encode("a     b"), (Ids{1, 6, 2}));
  EXPECT_EQ(tokenizer->encode("a b"), (Ids{1, 7, 2}));
}

TEST(TokenizerJson, ASingleWordHasNoWordBesideItAsRustSeesWords) {
  json words = small_tokenizer();
  words["added_tokens"].push_back({{"id", 6}, {"content", "Q"}, {"single_word", true}, {"normalized", false}});
  const auto tokenizer = tokenizer_from_json(words.dump(), "");
  const auto is_found = [&](const std::string& text) {
    const Ids ids = tokenizer->encode(text);
    return std::find(ids.begin(), ids.end(), 6) != ids.end();
  };
  for (const char* other : {"", " ", ".", "\u00b2", "\u00bd", "\u2460", "\u00ad", "\u20ac"})
    EXPECT_TRUE(is_found(other + std::string("Q") + other)) << other;
  for (const char* word : {"x", "7", "_", "\u200d", "\u200c", "\u0301", "\u00aa", "\u216b"})
    EXPECT_FALSE(is_found(word + std::string("Q")) || is_found(std::string("Q") + word)) << word;
}

TEST(TokenizerJson, AddedTokensFollowAListThatNamesATokenTwice) {
  const auto tokenizer = tokenizer_from_json(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["a", -2.0]]},
          "added_tokens": [{"id": 4, "content": "new", "normalized": false}]})",
      "");
  EXPECT_EQ(tokenizer->encode("bnew"), (Ids{2, 4}));
}

TEST(TokenizerJson, MergesAreStringsOrPairs) {
  json pairs = small_tokenizer();
  pairs["model"]["merges"] = json::array({json::array({"a", "b"})});
  EXPECT_EQ(tokenizer_from_json(pairs.dump(), "")->encode("ab"), (Ids{3}));
}

TEST(TokenizerJson, ConfigNamesTheSpecialTokensAndDecidesAboutBos) {
  const std::string text = small_tokenizer().dump();
  const auto plain = tokenizer_from_json(text, R"({"bos_token": "<s>", "eos_token": {"content": "abba"}})");
  EXPECT_EQ(plain->bos(), 4);
  EXPECT_EQ(plain->eos(), 5);
  EXPECT_EQ(plain->end_of_generation(), (Ids{5}));
  EXPECT_EQ(plain->encode("a"), (Ids{1}));
  const auto framed = tokenizer_from_json(
      text, R"({"bos_token": "<s>", "eos_token": "abba", "add_bos_token": true, "add_eos_token": true})");
  EXPECT_EQ(framed->encode("a"), (Ids{4, 1, 5}));
  EXPECT_EQ(framed->encode("a", {.add_special = false}), (Ids{1}));
  EXPECT_EQ(framed->encode(""), (Ids{4, 5}));
}

TEST(TokenizerJson, BytesOfTokens) {
  const auto byte_level = tokenizer_from_json(read_vectors("byte_level_bpe.json").at("tokenizer").dump(), "");
  const auto first = byte_level->encode("\xE2\x82\xAC", {.add_special = false});
  std::string bytes;
  for (const int32_t id : first) bytes += byte_level->token_bytes(id);
  EXPECT_EQ(bytes, "\xE2\x82\xAC");
  const auto sentencepiece = tokenizer_from_json(read_vectors("sentencepiece_bpe.json").at("tokenizer").dump(), "");
  bytes.clear();
  for (const int32_t id : sentencepiece->encode("the \xF0\x93\x84\xBE", {.add_special = false})) {
    bytes += sentencepiece->token_bytes(id);
  }
  EXPECT_EQ(bytes, " the \xF0\x93\x84\xBE");
}

TEST(TokenizerJson, EveryKindOfNonsenseIsAClearError) {
  const json good = small_tokenizer();
  ASSERT_EQ(error_of(good.dump()), "accepted");
  const auto with = [&](const char* pointer, json value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = std::move(value);
    return error_of(changed.dump());
  };
  using testing::HasSubstr;
  EXPECT_THAT(error_of(""), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[1, 2"), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("'model'"));
  EXPECT_THAT(error_of(good.dump(), "{"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(with("/model/type", "Markov"), HasSubstr("Markov"));
  EXPECT_THAT(with("/model/dropout", 0.5), HasSubstr("dropout"));
  EXPECT_THAT(with("/model/merges", json::array({"a c"})), HasSubstr("not in the vocabulary"));
  EXPECT_THAT(with("/model/merges", json::array({"abc"})), HasSubstr("merge"));
  EXPECT_THAT(with("/model/merges", json::array({json::array({"a"})})), HasSubstr("merges"));
  EXPECT_THAT(with("/model/merges", json::array({1})), HasSubstr("merges"));
  EXPECT_THAT(with("/model/vocab/huge", 4000000000u), HasSubstr("id"));
  EXPECT_THAT(with("/model/vocab/negative", -1), HasSubstr("id"));
  EXPECT_THAT(with("/model/vocab/text", "x"), HasSubstr("vocabulary"));
  EXPECT_THAT(with("/model/vocab", 3), HasSubstr("merge"));  // merges without tokens
  EXPECT_THAT(with("/model/unk_token", "nowhere"), HasSubstr("unknown token"));
  EXPECT_THAT(with("/added_tokens", "x"), HasSubstr("added_tokens"));
  EXPECT_THAT(with("/added_tokens/0/content", 5), HasSubstr("content"));
  EXPECT_THAT(with("/normalizer", {{"type", "Rot13"}}), HasSubstr("Rot13"));
  EXPECT_THAT(with("/normalizer", {{"kind", "NFC"}}), HasSubstr("type"));
  EXPECT_THAT(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}), HasSubstr("base64"));
  EXPECT_THAT(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}}),
              HasSubstr("charsmap"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}),
              HasSubstr("regex"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Eaten"}}),
              HasSubstr("Eaten"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}), HasSubstr("one character"));
  EXPECT_THAT(with("/decoder", {{"type", "Enigma"}}), HasSubstr("Enigma"));
  EXPECT_THAT(with("/post_processor", {{"type", "BertProcessing"}, {"cls", {"x", 99}}, {"sep", {"y", 1}}}),
              HasSubstr("99"));
  EXPECT_THAT(with("/post_processor", {{"type", "BertProcessing"}, {"cls", {"x", -1}}, {"sep", {"y", 1}}}),
              HasSubstr("id"));
}

TEST(TokenizerJson, GrowthWithoutBoundsIsStopped) {
  json steps = json::array();
  for (int i = 0; i < 40; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  json tokenizer = small_tokenizer();
  tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_THAT(error_of(tokenizer.dump()), testing::HasSubstr("grow"));

  tokenizer = small_tokenizer();
  json bytes = json::array();
  for (int i = 0; i < 40; ++i) {
    bytes.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", bytes}};
  EXPECT_THAT(error_of(tokenizer.dump()), testing::HasSubstr("grow"));

  tokenizer = small_tokenizer();
  for (json& step : steps) step["content"] = std::string(200, 'a');
  tokenizer["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  const auto decoder = tokenizer_from_json(tokenizer.dump(), "");
  EXPECT_THROW(decoder->decode(Ids{1}), Error);
}

TEST(TokenizerJson, DeepNestingIsAnErrorNotACrash) {
  const std::string deep(200000, '[');
  EXPECT_THAT(error_of(deep), testing::HasSubstr("deeply"));
  EXPECT_THAT(error_of("{\"normalizer\":" + deep), testing::HasSubstr("deeply"));
  std::string sequences = "null";
  for (int i = 0; i < 5000; ++i) sequences = R"({"type":"Sequence","normalizers":[)" + sequences + "]}";
  EXPECT_THAT(error_of("{\"normalizer\":" + sequences + "}"), testing::HasSubstr("deeply"));
}

TEST(TokenizerJson, TruncatedAtEveryByteIsAnError) {
  const std::string text = small_tokenizer().dump();
  for (size_t size = 0; size < text.size(); ++size) EXPECT_NE(error_of(text.substr(0, size)), "accepted") << size;
}

TEST(TokenizerJson, ThreadsMayShareATokenizer) {
  const auto tokenizer = tokenizer_from_json(read_vectors("sentencepiece_bpe.json").at("tokenizer").dump(), "");
  std::vector<std::vector<Ids>> found(4);
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (const std::string& text : corpus()) mine.push_back(tokenizer->encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& other : found) EXPECT_EQ(other, found[0]);
}

}  // namespace
}  // namespace millrace
