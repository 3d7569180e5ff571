#include "models/registry.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace millrace {
namespace {

// A new architecture is one file and one line here.
const std::array kArchitectures{
    Architecture{"llama", {"llama"}, {"LlamaForCausalLM", "MistralForCausalLM"}, make_llama},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture& find_architecture(const WeightSource& source) {
  const std::string& wanted = source.config().architecture();
  const bool gguf = source.convention() == WeightSource::Convention::Gguf;
  std::string supported;
  for (const auto& candidate : kArchitectures) {
    const auto& names = gguf ? candidate.gguf : candidate.hf;
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return candidate;
    supported += (supported.empty() ? "" : ", ") + std::string(candidate.name);
  }
  fail(ErrorKind::Unsupported, "{}: architecture '{}' is not supported; millrace runs {}", source.origin(), wanted, supported);
}

const Linear* output_head(Weights& weights, const DecoderConfig& config) {
  const TensorName own{"output.weight", "lm_head.weight"}, tied{"token_embd.weight", "model.embed_tokens.weight"};
  return weights.linear({{weights.has(own) ? own : tied, config.vocab}}, config.hidden);
}

}  // namespace millrace
