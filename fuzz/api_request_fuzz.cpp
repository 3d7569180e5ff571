// Any body as a request; the first byte selects the endpoint.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/requests/api_error.h"
#include "server/requests/chat_request.h"
#include "server/requests/completions_request.h"
#include "server/requests/embeddings_request.h"
#include "server/requests/responses_request.h"
#include "server/requests/tokenize_request.h"

using namespace millrace;

namespace {

void read(int kind, const Json& body) {
  const SamplingParams defaults;
  switch (kind) {
    case 0: {
      const ChatRequest r = chat_fields().read(body);
      template_messages(r.messages);
      to_sampling(r, defaults, 100);
      stop_strings(r);
      return;
    }
    case 1: {
      const CompletionsRequest r = completions_fields().read(body);
      to_sampling(r, defaults, 100);
      read_prompts(r.prompt);
      return;
    }
    case 2:
      read_prompts(embeddings_fields().read(body).input);
      return;
    case 3:
      template_messages(to_chat_request(responses_fields().read(body)).messages);
      return;
    case 4:
      tokenize_fields().read(body);
      return;
    default:
      detokenize_fields().read(body);
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(data[0] % 6, parse_json({reinterpret_cast<const char*>(data + 1), size - 1}));
  } catch (const ApiError& e) {
    error_body(e.problem());
  } catch (const Error&) {
  }
  return 0;
}
