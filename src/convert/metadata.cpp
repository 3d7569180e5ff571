#include "convert/metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "convert/architecture_keys.h"
#include "models/pooling_settings.h"

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
  k.number(rule.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", norm_epsilon(k));
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
                           !tensor.gguf.ends_with("exp_probs_b.bias") && !tensor.gguf.ends_with("ssm_dt.bias");
    k.require(!of_matrix, "biases (" + tensor.gguf + ")");
  }
}

// The pooling of embedding models and cross-encoders. GGUF has no key for scaling to length 1: readers always scale.
void add_pooling(ArchitectureKeys& k) {
  constexpr int64_t kMean = 1, kFirst = 2, kLast = 3, kRank = 4;
  if (k.model.has("cls.output.weight") || k.model.has("cls.weight")) return k.count("pooling_type", kRank);
  const PoolingSettings pooling = read_pooling(k.model.source);
  if (!pooling.kind) return;
  k.count("pooling_type", *pooling.kind == PoolKind::Mean ? kMean : *pooling.kind == PoolKind::First ? kFirst : kLast);
  if (!pooling.normalise)
    log().warn("{}: its vectors are not scaled; those of the GGUF file will have length 1", k.model.source.origin());
}

bool has_experts_of_nemotron(const WeightSource& source) {
  return std::any_of(source.tensors().begin(), source.tensors().end(),
                     [](const TensorInfo& tensor) { return tensor.name.find(".mixer.experts.") != std::string::npos; });
}

}  // namespace

const DeclaredTensor* ConvertedModel::find(std::string_view tensor) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.gguf == tensor; });
  return found == tensors.end() ? nullptr : &*found;
}

int64_t ConvertedModel::rows_of(std::string_view tensor) const {
  const DeclaredTensor* found = find(tensor);
  return found != nullptr ? found->shape.front() : 0;
}

bool ConvertedModel::has_in_layer(int64_t layer, std::string_view tensor) const {
  return has(fmt::format("blk.{}.{}", layer, tensor));
}

// Models with a factor on their blocks have another epsilon in `config`.
double norm_epsilon(const ArchitectureKeys& k) {
  if (k.model.architecture == "minicpm3") return k.number_of("rms_norm_eps", 1e-5);
  return k.number_of("residual_multiplier", 1) == 1 ? double(k.model.config.norm_epsilon)
                                                    : k.number_of("rms_norm_eps", 1e-6);
}

void add_layer_sizes(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  k.count("block_count", c.layers);
  k.count("embedding_length", c.hidden);
  k.count("vocab_size", c.vocab);
  k.number("attention.layer_norm_rms_epsilon", norm_epsilon(k));
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
  if (name == "Gemma3TextModel") gguf = "gemma-embedding";
  if (gguf == "nemotron_h" && has_experts_of_nemotron(source)) gguf = "nemotron_h_moe";
  if (gguf.empty()) fail(ErrorKind::Unsupported, "{}: GGUF has no architecture for '{}'", source.origin(), name);
  if (find_rule(gguf) == nullptr) {
    fail(ErrorKind::Unsupported, "{}: converting the architecture '{}' to GGUF is not supported", source.origin(),
         name);
  }
  return gguf;
}

void add_model_metadata(const ConvertedModel& model, GgufMetadataBuilder& out) {
  const ArchitectureRule& rule = *find_rule(model.architecture);
  ArchitectureKeys keys(model, out);
  if (!rule.biases) refuse_biases(keys);
  if (rule.sizes) add_sizes(keys, rule);
  if (rule.rope) add_rope(keys, rule);
  add_experts(keys);
  rule.keys(keys);
  if (const int64_t types = model.rows_of("token_types.weight"); types > 0)
    out.add_u32("tokenizer.ggml.token_type_count", static_cast<uint32_t>(types));
  add_pooling(keys);
}

}  // namespace millrace
