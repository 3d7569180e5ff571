// Compares single normalizers, pre-tokenizers and decoders with Hugging Face tokenizers.
#include <gmock/gmock.h>

#include "text/tokenizer/json_parts.h"
#include "vectors.h"

namespace millrace {
namespace {

TEST(TokenizerParts, NormalizersAsHuggingFace) {
  const auto texts = read_vectors("texts.json").at("short").get<std::vector<std::string>>();
  for (const auto& c : read_vectors("normalizers.json")) {
    const auto normalizer = normalizer_from_json(c.at("normalizer"));
    for (size_t i = 0; i < texts.size(); ++i) {
      NormalizedText text{texts[i]};
      normalizer->apply(text);
      EXPECT_EQ(text.text, c.at("expected").at(i).get<std::string>()) << c.at("name") << " of '" << texts[i] << "'";
    }
  }
}

TEST(TokenizerParts, PreTokenizersAsHuggingFace) {
  const auto cases = read_vectors("pre_tokenizers.json");
  for (const auto& c : cases) {
    const auto texts = (c.at("texts").is_null() ? cases.at(0) : c).at("texts").get<std::vector<std::string>>();
    const auto pre_tokenizer = pre_tokenizer_from_json(c.at("pre_tokenizer"));
    for (size_t i = 0; i < texts.size(); ++i) {
      PreTokens pieces{{{texts[i], true}}, {}, 1 << 20};
      if (texts[i].empty()) pieces.list.clear();
      pre_tokenizer->split(pieces);
      std::vector<std::string> found;
      for (const PreToken& piece : pieces.list) found.emplace_back(piece.text);
      EXPECT_EQ(found, c.at("expected").at(i).get<std::vector<std::string>>())
          << c.at("name") << " of '" << texts[i] << "'";
    }
  }
}

TEST(TokenizerParts, DecodersAsHuggingFace) {
  for (const auto& c : read_vectors("decoders.json")) {
    const auto steps = decoders_from_json(c.at("decoder"));
    for (size_t i = 0; i < c.at("tokens").size(); ++i) {
      DecodeStream stream(steps);
      std::string text;
      for (const auto& token : c.at("tokens").at(i)) {
        stream.push(token.get<std::string>());
        text += stream.take();
      }
      stream.finish();
      text += stream.take();
      EXPECT_EQ(text, c.at("expected").at(i).get<std::string>()) << c.at("name") << " of " << c.at("tokens").at(i);
    }
  }
}

}  // namespace
}  // namespace millrace
