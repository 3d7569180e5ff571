// Any text as a config.json: reads every key that models read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "formats/config.h"

namespace millrace {
namespace {

// Runs one look-up; refusing a value of the wrong type is fine.
template <class F>
void attempt(F&& look_up) {
  try {
    look_up();
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  attempt([&] {
    const Config config = Config::from_hf({reinterpret_cast<const char*>(data), size}, "config.json");
    for (const char* key : {"num_hidden_layers", "head_dim", "eos_token_id", "rope_parameters.rope_theta",
                            "rope_parameters.rope_type", "rope_parameters.full_attention.rope_theta",
                            "rope_parameters.long_factor", "layer_types", "dtype", "tie_word_embeddings"}) {
      attempt([&] { (void)config.integer({.hf = key}); });
      attempt([&] { (void)config.number({.hf = key}); });
      attempt([&] { (void)config.string({.hf = key}); });
      attempt([&] { (void)config.boolean({.hf = key}); });
      attempt([&] { (void)config.array<double>({.hf = key}); });
      attempt([&] { (void)config.array<std::string>({.hf = key}); });
    }
  });
  return 0;
}
