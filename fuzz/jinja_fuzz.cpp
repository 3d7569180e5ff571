// Any bytes as a chat template, with an optional context after the last NUL: rendering succeeds or fails cleanly.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::ordered_json;
  static const ordered_json kContext = ordered_json::parse(R"({
    "messages": [{"role": "user", "content": "Hi é"}, {"role": "assistant", "content": null,
                  "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "s": "text", "n": 7, "l": [3, 1, 2], "d": {"k": "v"}})");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t separator = input.rfind('\0');
  ordered_json context = kContext;
  std::string_view source = input;
  if (separator != std::string_view::npos) {
    context = ordered_json::parse(input.substr(separator + 1), nullptr, /*allow_exceptions=*/false);
    source = input.substr(0, separator);
    if (!context.is_object()) context = kContext;
  }
  try {
    const millrace::ChatTemplate chat_template(source);
    chat_template.render(context, std::chrono::system_clock::time_point());
  } catch (const millrace::Error&) {
  }
  return 0;
}
