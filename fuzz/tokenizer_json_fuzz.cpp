// A tokenizer.json and, after a zero byte, a text to encode and decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  const std::string_view json = input.substr(0, border);
  const std::string_view text =
      border == std::string_view::npos ? "Hello, w\xC3\xB6rld! 123  \n\xff" : input.substr(border + 1);
  try {
    const auto tokenizer = tokenizer_from_json(json, "");
    auto ids = tokenizer->encode(text);
    tokenizer->encode(text, {.add_special = false, .parse_special = false});
    for (int32_t id = -1; id < tokenizer->vocab_size() && id < 50; ++id) {
      ids.push_back(id);
      tokenizer->token_bytes(id);
    }
    StreamingDetokenizer stream(*tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    MR_ASSERT(streamed == tokenizer->decode(ids, false));
  } catch (const Error&) {
  }
  return 0;
}
