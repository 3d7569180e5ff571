#include "convert/metadata.h"

#include <algorithm>

#include "base/error.h"
#include "convert/architecture_keys.h"

namespace millrace {
namespace {

void add_sizes(ArchitectureKeys& k, const ArchitectureRule& rule) {
  const DecoderConfig& c = k.model.config;
  k.count("block_count", c.layers);
  k.count("context_length", c.context);
  k.count("embedding_length", c.hidden);
  k.count("feed_forward_length", c.feed_forward);
  k.count("attention.head_count", c.heads);
  k.count("attention.head_count_kv", c.kv_heads);
  k.count("vocab_size", c.vocab);
  k.count("attention.key_length", c.head_dim);
  k.count("attention.value_length", c.head_dim);
  // Models with a factor on their blocks have another epsilon in `config`.
  const double epsilon =
      k.number_of("residual_multiplier", 1) == 1 ? c.norm_epsilon : k.number_of("rms_norm_eps", 1e-6);
  k.number(rule.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", epsilon);
}

void add_experts(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  if (c.experts == 0) return;
  k.count("expert_count", c.experts);
  k.count("expert_used_count", c.experts_per_row);
  const std::string& name = k.model.architecture;
  if (c.expert_width != c.feed_forward || k.model.keys().has({.hf = "moe_intermediate_size"}) || name == "gpt-oss" ||
      name == "minimax-m2") {
    k.count("expert_feed_forward_length", c.expert_width);
  }
}

void refuse_biases(const ArchitectureKeys& k) {
  for (const DeclaredTensor& tensor : k.model.tensors) {
    const bool of_matrix = tensor.gguf.ends_with(".bias") && !tensor.gguf.ends_with("_norm.bias") &&
                           !tensor.gguf.ends_with("exp_probs_b.bias");
    k.require(!of_matrix, "biases (" + tensor.gguf + ")");
  }
}

}  // namespace

bool ConvertedModel::has(std::string_view tensor) const {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& declared) { return declared.gguf == tensor; });
}

void ArchitectureKeys::require(bool holds, std::string_view what) const {
  if (holds) return;
  fail(ErrorKind::Unsupported, "{}: GGUF files of the architecture '{}' cannot express {}", model.source.origin(),
       model.architecture, what);
}

std::string gguf_architecture(const WeightSource& source) {
  const std::string& name = source.config().architecture();
  const Architecture& found = find_architecture(source);
  std::string gguf(found.gguf.empty() ? "" : found.gguf.front());
  if (found.name == "mixtral") gguf = "llama";
  if (name == "Glm4ForCausalLM" || name == "glm4") gguf = "glm4";
  if (name == "Cohere2ForCausalLM" || name == "cohere2") gguf = "cohere2";
  if (gguf.empty()) fail(ErrorKind::Unsupported, "{}: GGUF has no architecture for '{}'", source.origin(), name);
  if (find_rule(gguf) == nullptr) {
    fail(ErrorKind::Unsupported, "{}: converting the architecture '{}' to GGUF is not supported", source.origin(),
         name);
  }
  return gguf;
}

bool rotates_pairs(std::string_view gguf) { return find_rule(gguf)->rotates_pairs; }

std::string own_name(std::string_view gguf, const std::string& usual) {
  constexpr std::string_view kFeedNorm = "ffn_norm.weight";
  if (!find_rule(gguf)->feed_norm_after || !usual.ends_with("." + std::string(kFeedNorm))) return usual;
  return usual.substr(0, usual.size() - kFeedNorm.size()) + "post_attention_norm.weight";
}

void add_model_metadata(const ConvertedModel& model, GgufMetadataBuilder& out) {
  const ArchitectureRule& rule = *find_rule(model.architecture);
  ArchitectureKeys keys(model, out);
  if (!rule.biases) refuse_biases(keys);
  add_sizes(keys, rule);
  if (rule.rope) add_rope(keys, rule);
  add_experts(keys);
  if (rule.extras != nullptr) rule.extras(keys);
}

}  // namespace millrace
