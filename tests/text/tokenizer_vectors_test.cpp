// Compares complete tokenizers, from tokenizer.json and from the same vocabulary as GGUF, with Hugging Face tokenizers.
#include <gmock/gmock.h>

#include "text/detokenizer.h"
#include "vectors.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamingDetokenizer stream(tokenizer, true);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& expected, const std::string& name) {
  for (size_t i = 0; i < corpus().size(); ++i) {
    EXPECT_EQ(tokenizer.encode(corpus()[i], {.add_special = false}), expected.at(i).get<Ids>())
        << name << ", text " << i << ": " << corpus()[i];
  }
}

class CompleteTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(CompleteTokenizer, EncodesAsHuggingFace) {
  const auto vectors = read_vectors(GetParam());
  const auto tokenizer = tokenizer_from_json(vectors.at("tokenizer").dump(), "");
  expect_ids(*tokenizer, vectors.at("ids"), GetParam());
  for (size_t i = 0; i < vectors.at("framed").size(); ++i) {
    EXPECT_EQ(tokenizer->encode(corpus()[i]), vectors.at("framed").at(i).get<Ids>())
        << "with special tokens, text " << i;
  }
}

TEST_P(CompleteTokenizer, DecodesAsHuggingFace) {
  const auto vectors = read_vectors(GetParam());
  const auto tokenizer = tokenizer_from_json(vectors.at("tokenizer").dump(), "");
  for (size_t i = 0; i < corpus().size(); ++i) {
    const auto ids = vectors.at("ids").at(i).get<Ids>();
    EXPECT_EQ(tokenizer->decode(ids), vectors.at("decoded").at(i).get<std::string>()) << "text " << i;
    Ids odd;
    for (size_t k = 1; k < ids.size(); k += 2) odd.push_back(ids[k]);
    EXPECT_EQ(tokenizer->decode(odd), vectors.at("decoded_odd").at(i).get<std::string>()) << "text " << i;
    EXPECT_EQ(streamed(*tokenizer, odd), vectors.at("decoded_odd").at(i).get<std::string>()) << "text " << i;
  }
  for (size_t i = 0; i < vectors.at("framed").size(); ++i) {
    const auto ids = vectors.at("framed").at(i).get<Ids>();
    EXPECT_EQ(tokenizer->decode(ids, false), vectors.at("decoded_special").at(i).get<std::string>()) << "text " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, CompleteTokenizer,
                         testing::Values("sentencepiece_bpe.json", "metaspace_bpe.json", "gemma_bpe.json",
                                         "unigram.json", "unigram_bytes.json", "wordpiece.json", "wordlevel.json",
                                         "roberta.json", "word_suffix_bpe.json", "subword_prefix_bpe.json"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

class GgufTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizer, EncodesAndDecodesTheSame) {
  const auto vectors = read_vectors(GetParam());
  const auto tokenizer = tokenizer_from_gguf(parse_gguf_vocabulary(vectors.at("gguf").dump()));
  expect_ids(*tokenizer, vectors.at("ids"), GetParam());
  for (size_t i = 0; i < vectors.at("framed").size(); ++i) {
    EXPECT_EQ(tokenizer->encode(corpus()[i]), vectors.at("framed").at(i).get<Ids>())
        << "with special tokens, text " << i;
  }
  for (size_t i = 0; i < corpus().size(); ++i) {
    EXPECT_EQ(tokenizer->decode(vectors.at("ids").at(i).get<Ids>()), vectors.at("decoded").at(i).get<std::string>())
        << "text " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, GgufTokenizer,
                         testing::Values("sentencepiece_bpe.json", "gemma_bpe.json", "unigram.json"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

// One byte-level vocabulary with every named pre-tokenizer of GGUF.
TEST(ByteLevelBpe, EveryPreTokenizerFromBothFiles) {
  const auto base = read_vectors("byte_level_bpe.json").at("tokenizer");
  GgufVocabulary gguf{.model = "gpt2", .add_bos = false};
  gguf.tokens.resize(base.at("model").at("vocab").size() + base.at("added_tokens").size());
  for (const auto& [token, id] : base.at("model").at("vocab").items()) gguf.tokens.at(id) = token;
  gguf.types.assign(gguf.tokens.size(), 1);
  size_t count = base.at("model").at("vocab").size();
  for (const auto& added : base.at("added_tokens")) {
    const size_t id = added.at("id");
    gguf.tokens.at(id) = added.at("content");
    gguf.types.at(id) = added.at("special") ? 3 : 4;
    count = std::max(count, id + 1);
  }
  gguf.tokens.resize(count), gguf.types.resize(count);
  for (const auto& merge : base.at("model").at("merges")) {
    gguf.merges.push_back(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }

  const auto variants = read_vectors("byte_level_variants.json");
  EXPECT_GE(variants.size(), 17u);
  for (const auto& variant : variants) {
    const auto name = variant.at("name").get<std::string>();
    nlohmann::json json = base;
    json["pre_tokenizer"] = variant.at("pre_tokenizer");
    json["normalizer"] = variant.at("normalizer");
    json["model"]["ignore_merges"] = variant.at("ignore_merges");
    expect_ids(*tokenizer_from_json(json.dump(), ""), variant.at("ids"), name + " from tokenizer.json");
    gguf.pre = name;
    expect_ids(*tokenizer_from_gguf(gguf), variant.at("ids"), name + " from GGUF");
  }
}

}  // namespace
}  // namespace millrace
