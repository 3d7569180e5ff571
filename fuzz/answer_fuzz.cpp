// A model's answer: the first byte selects the format, the second a position to split at. Split and whole input must
// give the same result.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/answer/answer_parser.h"

namespace {

using namespace millrace;

std::string flatten(const AnswerParserOptions& options, std::string_view first, std::string_view second) {
  AnswerParser parser(options);
  std::string text[2], calls;
  for (const auto& pieces : {parser.push(first), parser.push(second), parser.finish()}) {
    for (const AnswerPiece& piece : pieces) {
      if (piece.call < 0) {
        text[piece.kind == AnswerPiece::Kind::Reasoning] += piece.text;
      } else {
        calls += (piece.kind == AnswerPiece::Kind::Call ? "\n" : "") + piece.text;
      }
    }
  }
  return text[0] + '\0' + text[1] + '\0' + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  AnswerParserOptions options;
  options.format.tools = static_cast<ToolFormat>(data[0] % 4);
  options.format.reasons = data[0] & 4;
  options.in_reasoning = options.format.reasons && (data[0] & 8);
  options.tools = data[0] & 16;
  options.after_marker = options.format.tools == ToolFormat::Mistral && (data[0] & 32);
  if (options.format.harmony() && (data[0] & 64)) options.opened = "<|channel|>analysis<|message|>";
  options.names = {"f"};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = text.empty() ? 0 : data[1] % (text.size() + 1);
  MR_ASSERT(flatten(options, text.substr(0, cut), text.substr(cut)) == flatten(options, text, ""));
  return 0;
}
