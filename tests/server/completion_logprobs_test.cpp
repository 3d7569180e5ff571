#include "server/completion_logprobs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace millrace {
namespace {

using InText = CompletionLogprobs::InText;

std::shared_ptr<const Tokenizer> byte_level_tokenizer() {
  std::ifstream file(MILLRACE_TEST_DATA "/tokenizers/byte_level_bpe.json");
  return tokenizer_from_json(Json::parse(file).at("tokenizer").dump(), "");
}

TEST(CompletionLogprobs, PartsOfCharactersHaveNamesOfTheirOwn) {
  const auto tokenizer = byte_level_tokenizer();
  TokenLogprobs logprobs;
  std::set<std::string> texts;
  int parts = 0;
  for (int32_t token = 0; token < tokenizer->vocab_size(); ++token) {
    const std::string bytes = tokenizer->token_bytes(token);
    if (tokenizer->is_special(token) || !texts.insert(bytes).second) continue;
    parts += bytes.size() == 1 && (bytes[0] & 0x80) != 0 ? 1 : 0;
    logprobs.top.push_back({token, -static_cast<float>(logprobs.top.size())});
  }
  ASSERT_GT(parts, 100) << "the vocabulary has single bytes";
  logprobs.chosen = logprobs.top.back();
  CompletionLogprobs all(*tokenizer);
  all.add(logprobs, InText::Yes);
  const Json sent = Json::parse(to_text(all.take()));  // as a client parses it: of two equal names one would be lost
  EXPECT_EQ(sent["top_logprobs"][0].size(), texts.size());
  EXPECT_EQ(sent["top_logprobs"][0][sent["tokens"][0].get<std::string>()], logprobs.chosen.logprob);
}

TEST(CompletionLogprobs, OffsetsCountCharactersOfTheText) {
  const auto tokenizer = byte_level_tokenizer();
  CompletionLogprobs all(*tokenizer);
  const std::string text = "q\u20acq";
  std::vector<int> offsets;
  int characters = 0;
  for (const int32_t token : tokenizer->encode(text, {.add_special = false})) {
    all.add({.chosen = {token, -1}, .top = {}}, InText::Yes);
    offsets.push_back(characters);
    for (const char c : tokenizer->token_bytes(token)) characters += (c & 0xc0) != 0x80 ? 1 : 0;
  }
  EXPECT_EQ(characters, 3);
  EXPECT_EQ(all.take()["text_offset"].get<std::vector<int>>(), offsets);
}

}  // namespace
}  // namespace millrace
