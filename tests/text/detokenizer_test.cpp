#include "text/detokenizer.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <random>

#include "text/unicode/utf8.h"
#include "vectors.h"

namespace millrace {
namespace {

class Streaming : public testing::TestWithParam<const char*> {};

TEST_P(Streaming, GivesWholeCharactersThatJoinToTheDecodedText) {
  const auto tokenizer = tokenizer_from_json(read_vectors(GetParam()).at("tokenizer").dump(), "");
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (tokenizer->vocab_size() + 2)) - 1;
    const bool skip_special = round % 2 == 0;
    StreamingDetokenizer stream(*tokenizer, skip_special);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    const std::string rest = stream.finish();
    ASSERT_TRUE(is_valid_utf8(rest));
    ASSERT_EQ(text + rest, tokenizer->decode(ids, skip_special));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Streaming,
                         testing::Values("byte_level_bpe.json", "sentencepiece_bpe.json", "metaspace_bpe.json",
                                         "gemma_bpe.json", "unigram.json", "unigram_bytes.json", "wordpiece.json",
                                         "wordlevel.json", "roberta.json", "word_suffix_bpe.json",
                                         "subword_prefix_bpe.json"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

TEST(Streaming, GivesOutWhatIsCertainAtOnce) {
  const auto tokenizer = tokenizer_from_json(read_vectors("byte_level_bpe.json").at("tokenizer").dump(), "");
  const auto ids = tokenizer->encode("€", {.add_special = false});
  StreamingDetokenizer stream(*tokenizer, true);
  const int32_t letter = tokenizer->id_of("q").value();
  EXPECT_EQ(stream.push(letter), "q");
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    text += stream.push(ids[i]);
    EXPECT_EQ(text, i + 1 < ids.size() ? "" : "€");
  }
  stream.push(ids[0]);
  EXPECT_EQ(stream.push(letter), ids.size() > 1 ? "\uFFFDq" : "q");  // the incomplete character is final now
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push(letter), "q");
}

}  // namespace
}  // namespace millrace
