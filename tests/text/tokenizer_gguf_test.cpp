// Tests tokenizers from GGUF vocabularies and the defaults of missing fields.
#include <gmock/gmock.h>

#include <limits>

#include "base/error.h"
#include "vectors.h"

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;
using testing::HasSubstr;

GgufVocabulary small_byte_level() {
  GgufVocabulary v{.model = "gpt2", .pre = "gpt-2"};
  v.tokens = {"a", "b", "ab", "Ġ", "<|im_end|>", "<|user|>", "Ã", "©", "<|endoftext|>"};
  v.types = {1, 1, 1, 1, 3, 4, 1, 1, 3};
  v.merges = {"a b"};
  return v;
}

GgufVocabulary small_sentencepiece() {
  GgufVocabulary v{.model = "llama"};
  v.tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁a", "bb", "<|user|>"};
  v.types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 3};
  v.scores = {0, 0, 0, 0, -1, -2, -3, -1, -2, -5, 0};
  return v;
}

std::string error_of(GgufVocabulary vocabulary) {
  try {
    tokenizer_from_gguf(std::move(vocabulary));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerGguf, UnknownNamesAreRefusedByName) {
  GgufVocabulary v = small_byte_level();
  v.pre = "no-such-pre";
  EXPECT_THAT(error_of(v), HasSubstr("no-such-pre"));
  v = small_byte_level();
  v.model = "rwkv";
  EXPECT_THAT(error_of(v), HasSubstr("'rwkv'"));
}

GgufVocabulary small_wordpiece() {
  GgufVocabulary v{.model = "bert"};
  v.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁sky", "s", "▁is", "▁,", "▁日", "▁u", "ber"};
  v.types = {3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  v.bos = 2;
  v.separator = 3;
  v.unknown = 1;
  return v;
}

TEST(TokenizerGguf, WordPieceBeginsWordsWithThePhantomSpace) {
  const auto tokenizer = tokenizer_from_gguf(small_wordpiece());
  EXPECT_EQ(tokenizer->encode("Skys, is"), (Ids{2, 4, 5, 7, 6, 3}));
  EXPECT_EQ(tokenizer->encode("日日 Über"), (Ids{2, 8, 8, 9, 10, 3}));
  EXPECT_EQ(tokenizer->encode("skyx"), (Ids{2, 1, 3}));
  EXPECT_EQ(tokenizer->encode(""), (Ids{2, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5, 6, 3}), "skys is");
  GgufVocabulary cased = small_wordpiece();
  cased.tokens[6] = "▁IS";
  EXPECT_EQ(tokenizer_from_gguf(cased)->encode("IS is"), (Ids{2, 6, 1, 3}));
}

TEST(TokenizerGguf, PairsHaveTheirSeparators) {
  const auto tokenizer = tokenizer_from_gguf(small_wordpiece());
  const EncodedPair pair = tokenizer->encode_pair("sky is", "skys");
  EXPECT_EQ(pair.ids, (Ids{2, 4, 6, 3, 4, 5, 3}));
  EXPECT_EQ(pair.second, 4);
  EXPECT_EQ(tokenizer->encode_pair("sky is", "skys is", 6).ids, (Ids{2, 4, 6, 3, 4, 3}));
  GgufVocabulary v = small_sentencepiece();
  v.add_eos = v.add_sep = true;
  v.separator = 2;
  const EncodedPair other = tokenizer_from_gguf(v)->encode_pair("a", "bb");
  EXPECT_EQ(other.ids.front(), 1);
  EXPECT_EQ(std::count(other.ids.begin(), other.ids.end(), 2), 3);  // </s> </s> between the texts, </s> behind them
  EXPECT_EQ(other.second, 0);
}

TEST(TokenizerGguf, EveryKnownPreTokenizerOpens) {
  for (const char* name : {"gpt-2",        "llama-bpe",
                           "llama3",       "llama-v3",
                           "qwen2",        "qwen35",
                           "deepseek-llm", "deepseek-coder",
                           "deepseek-v3",  "deepseek-r1-qwen",
                           "falcon",       "falcon3",
                           "starcoder",    "refact",
                           "mpt",          "olmo",
                           "command-r",    "smollm",
                           "tekken",       "pixtral",
                           "gpt-4o",       "llama4",
                           "chatglm-bpe",  "glm4",
                           "stablelm2",    "dbrx",
                           "smaug-bpe",    "kimi-k2",
                           "bailingmoe",   "seed-coder",
                           "minicpm5",     "bloom",
                           "viking",       "superbpe",
                           "tiny_aya",     "hunyuan",
                           "default",      ""}) {
    GgufVocabulary v = small_byte_level();
    v.pre = name;
    v.add_bos = false;
    const auto tokenizer = tokenizer_from_gguf(v);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab a 123,é漢  \n")), "ab a é  ")
        << name;  // the other characters have no tokens
  }
}

TEST(TokenizerGguf, ControlTokensAreSpecialAndUserDefinedOnesAreNot) {
  const auto tokenizer = tokenizer_from_gguf(small_byte_level());
  EXPECT_EQ(tokenizer->encode("ab<|im_end|><|user|>"), (Ids{2, 4, 5}));
  EXPECT_EQ(tokenizer->encode("ab<|im_end|><|user|>", {.parse_special = false}), (Ids{2, 5}));
  EXPECT_TRUE(tokenizer->is_special(4) && !tokenizer->is_special(5));
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5}), "ab<|user|>");
  EXPECT_EQ(tokenizer->decode(Ids{2, 4, 5}, false), "ab<|im_end|><|user|>");
  EXPECT_EQ(tokenizer->decode(Ids{6, 7, 6}), "é\uFFFD");
}

TEST(TokenizerGguf, EndsOfGeneration) {
  GgufVocabulary v = small_byte_level();
  v.eos = 2;
  v.eot = 0;
  EXPECT_EQ(tokenizer_from_gguf(v)->end_of_generation(), (Ids{0, 2, 4, 8}));
  v.tokens[0] = "<|return|>", v.tokens[1] = "<|end|>", v.types[0] = v.types[1] = 3;
  v.merges = {"Ã ©"};
  v.eot.reset();
  EXPECT_EQ(tokenizer_from_gguf(v)->end_of_generation(), (Ids{0, 2, 4, 8}));
}

TEST(TokenizerGguf, BosAndEosAreAddedAsTheFileSays) {
  GgufVocabulary v = small_byte_level();
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("a"), (Ids{0}));
  v.bos = 4, v.eos = 8, v.add_bos = true, v.add_eos = true;
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("a"), (Ids{4, 0, 8}));
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("a", {.add_special = false}), (Ids{0}));
  v.bos.reset();
  EXPECT_THAT(error_of(v), HasSubstr("add_bos_token"));
  v = small_byte_level();
  v.pre = "llama-bpe", v.bos = 4;  // this name implies add_bos
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("a"), (Ids{4, 0}));
  EXPECT_EQ(tokenizer_from_gguf(small_sentencepiece())->encode("a"), (Ids{1, 8}));
}

TEST(TokenizerGguf, SentencePieceTakesTheBestScoreFirst) {
  GgufVocabulary v = small_sentencepiece();
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("abb\n", {.add_special = false}), (Ids{4, 7, 6, 3}));
  v.add_space_prefix = false;
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("abb\n", {.add_special = false}), (Ids{7, 6, 3}));
  v.scores[7] = -9;
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("abbz", {.add_special = false}), (Ids{5, 9, 0}));  // no byte token for z
}

TEST(TokenizerGguf, SpecialTokensOfPhi3TakeTheSpaceBehindThem) {
  GgufVocabulary v = small_sentencepiece();
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("<|user|>\na", {.add_special = false}), (Ids{10, 4, 3, 5}));
  v.architecture = "phi3";
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("<|user|>\na", {.add_special = false}), (Ids{10, 8}));
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("<s>\na", {.add_special = false}), (Ids{1, 4, 3, 5}));
}

TEST(TokenizerGguf, BrokenVocabulariesAreErrors) {
  GgufVocabulary v = small_byte_level();
  v.tokens.clear(), v.types.clear();
  EXPECT_THAT(error_of(v), HasSubstr("no tokens"));
  v = small_byte_level();
  v.types.pop_back();
  EXPECT_THAT(error_of(v), HasSubstr("types"));
  v = small_byte_level();
  v.tokens[1] = "a";
  EXPECT_THAT(error_of(v), HasSubstr("both"));
  v = small_byte_level();
  v.merges.clear();
  EXPECT_THAT(error_of(v), HasSubstr("merges"));
  v = small_byte_level();
  v.eos = 100;
  EXPECT_THAT(error_of(v), HasSubstr("100"));
  v = small_sentencepiece();
  v.scores.pop_back();
  EXPECT_THAT(error_of(v), HasSubstr("scores"));
  v = small_sentencepiece();
  v.scores[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of(v), HasSubstr("scores"));
  v = small_sentencepiece();
  v.unknown = -3;
  EXPECT_THAT(error_of(v), HasSubstr("-3"));
  v = small_sentencepiece();
  v.model = "t5", v.precompiled_charsmap = "abc";
  EXPECT_THAT(error_of(v), HasSubstr("charsmap"));
}

TEST(TokenizerGguf, PaddingThatWasNeverAddedIsNone) {
  GgufVocabulary v = small_byte_level();
  v.padding = 9;
  EXPECT_EQ(tokenizer_from_gguf(v)->padding(), std::nullopt);
  v.padding = 8;
  EXPECT_EQ(tokenizer_from_gguf(v)->padding(), 8);
}

TEST(TokenizerGguf, OddMergesAndTokensDoNotHurt) {
  GgufVocabulary v = small_byte_level();
  v.merges = {"", " ", "a", "a b", "a b", "x y", " b"};
  v.tokens[3] = "\xff\xfe", v.tokens[7] = "";
  EXPECT_EQ(tokenizer_from_gguf(v)->encode("ab"), (Ids{2}));
}

}  // namespace
}  // namespace millrace
