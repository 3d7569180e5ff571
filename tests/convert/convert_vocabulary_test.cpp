// Tokenizers as GGUF vocabularies: the same tokens for every text of the corpus, or a refusal.
#include "convert/vocabulary.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "convert/tokenizer_probes.h"
#include "vectors.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 2000;

// The vectors' tokenizer has no splitting of words.
std::string gpt2_words() {
  auto tokenizer = read_vectors("byte_level_bpe.json").at("tokenizer");
  tokenizer["pre_tokenizer"]["use_regex"] = true;
  return tokenizer.dump();
}

GgufVocabulary converted(const std::string& json, const std::string& architecture = "llama") {
  return gguf_vocabulary(json, R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})", architecture,
                         kRows);
}

void expect_same_tokens(const std::string& json, const GgufVocabulary& vocabulary) {
  const auto want = tokenizer_from_json(json, ""), got = tokenizer_from_gguf(vocabulary);
  ASSERT_EQ(vocabulary.tokens.size(), size_t{kRows});
  for (const std::string& text : corpus()) {
    const EncodeOptions plain{.add_special = false};
    const auto ids = want->encode(text, plain);
    EXPECT_EQ(got->encode(text, plain), ids) << text;
    EXPECT_EQ(got->decode(ids), want->decode(ids)) << text;
  }
}

TEST(ConvertVocabulary, ByteLevelFindsItsPreTokenizer) {
  const std::string json = gpt2_words();
  const GgufVocabulary vocabulary = converted(json);
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "gpt-2");
  EXPECT_FALSE(vocabulary.merges.empty());
  expect_same_tokens(json, vocabulary);
}

// Each name's own steps in a tokenizer.json: the conversion finds the name, or another with the same tokens.
TEST(ConvertVocabulary, FindsThePatternOfLlama3AndQwen2) {
  auto tokenizer = read_vectors("byte_level_bpe.json").at("tokenizer");
  const auto split = [](const char* pattern) {
    return nlohmann::json{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
  };
  constexpr const char* kLlama3 =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  constexpr const char* kQwen2 =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  tokenizer["pre_tokenizer"] = split(kLlama3);
  tokenizer["model"]["ignore_merges"] = true;
  EXPECT_EQ(converted(tokenizer.dump()).pre, "llama-bpe");
  tokenizer["pre_tokenizer"] = split(kQwen2);
  tokenizer["model"]["ignore_merges"] = false;
  tokenizer["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(converted(tokenizer.dump()).pre, "qwen2");
  expect_same_tokens(tokenizer.dump(), converted(tokenizer.dump()));
  tokenizer["pre_tokenizer"] = split("x+|[^x]");
  EXPECT_THROW(converted(tokenizer.dump()), Error);
}

TEST(ConvertVocabulary, SentencePieceHasScores) {
  const std::string json = read_vectors("sentencepiece_bpe.json").at("tokenizer").dump();
  const GgufVocabulary vocabulary = converted(json);
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_EQ(vocabulary.add_space_prefix, true);
  EXPECT_EQ(vocabulary.add_bos, true);
  EXPECT_EQ(vocabulary.types[3], 6);  // <0x00>
  expect_same_tokens(json, vocabulary);
}

TEST(ConvertVocabulary, GemmaHasNoSpacePrefix) {
  const std::string json = read_vectors("gemma_bpe.json").at("tokenizer").dump();
  const GgufVocabulary vocabulary = converted(json, "gemma3");
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_EQ(vocabulary.add_space_prefix, false);
  expect_same_tokens(json, vocabulary);
}

TEST(ConvertVocabulary, Unigram) {
  const std::string json = read_vectors("unigram.json").at("tokenizer").dump();
  const GgufVocabulary vocabulary = converted(json);
  EXPECT_EQ(vocabulary.model, "t5");
  expect_same_tokens(json, vocabulary);
}

TEST(ConvertVocabulary, PadsToTheRowsOfTheEmbedding) {
  const std::string json = gpt2_words();
  const GgufVocabulary vocabulary = converted(json);
  EXPECT_EQ(vocabulary.tokens.back(), "[PAD1999]");
  EXPECT_EQ(vocabulary.types.back(), 5);
  EXPECT_EQ(vocabulary.types[1], 3);    // <s> is special
  EXPECT_EQ(vocabulary.types[900], 3);  // <|user|> is not, but looks so
  try {
    gguf_vocabulary(json, "", "llama", 100);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("but the embedding has 100 rows"));
  }
}

TEST(ConvertVocabulary, WordPiece) {
  auto tokenizer = read_vectors("wordpiece.json").at("tokenizer");
  EXPECT_THROW(converted(tokenizer.dump(), "bert"), Error);  // words of 30 characters at most
  tokenizer["model"]["max_input_chars_per_word"] = 100;
  const std::string json = tokenizer.dump();
  const GgufVocabulary vocabulary = converted(json, "bert");
  EXPECT_EQ(vocabulary.model, "bert");
  EXPECT_TRUE(vocabulary.cls && vocabulary.separator && vocabulary.cls != vocabulary.separator);
  expect_same_tokens(json, vocabulary);
}

TEST(ConvertVocabulary, RefusesOtherKindsByName) {
  const std::string json = read_vectors("wordlevel.json").at("tokenizer").dump();
  try {
    converted(json);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_THAT(error.what(), HasSubstr("'WordLevel'"));
  }
}

}  // namespace
}  // namespace millrace
