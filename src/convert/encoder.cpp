// BERT and its relatives, ModernBERT, Nomic BERT and EmbeddingGemma as GGUF files.
#include "models/encoder.h"

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {
namespace {

void add_encoder_sizes(ArchitectureKeys& k, int64_t context) {
  const DecoderConfig& c = k.model.config;
  k.count("block_count", c.layers);
  k.count("context_length", context);
  k.count("embedding_length", c.hidden);
  k.count("feed_forward_length", c.feed_forward);
  k.count("attention.head_count", c.heads);
  k.count("vocab_size", c.vocab);
  k.number("attention.layer_norm_epsilon", double(c.norm_epsilon));
  k.flag("attention.causal", false);
}

}  // namespace

void bert_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::GeluErf);
  add_encoder_sizes(k, k.model.rows_of("position_embd.weight") - first_position(k.model.source));
}

void nomic_bert_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  add_encoder_sizes(k, k.model.config.context);
}

void modern_bert_keys(ArchitectureKeys& k) {
  constexpr int64_t kEvery = 3;  // llama.cpp's
  const DecoderConfig& c = k.model.config;
  require_activation(k, Activation::GeluErf, "hidden_activation");
  k.require(!k.model.has("blk.0.attn_qkv.bias") && !k.model.has("blk.0.ffn_up.bias"), "biases");
  const auto types = k.model.keys().optional_array<std::string>({.hf = "layer_types"});
  const int64_t every = k.count_of("global_attn_every_n_layers", kEvery);
  for (int64_t i = 0; i < c.layers; ++i) {
    const bool local = types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : i % every != 0;
    k.require(local == (i % kEvery != 0), "such a pattern of layers with a window");
  }
  const auto pooling = k.model.keys().optional_string({.hf = "classifier_pooling"}).value_or("cls");
  k.require(!k.model.has("cls.output.weight") || pooling == "cls", "a classifier of the mean");
  add_encoder_sizes(k, c.context);
  const double global = k.number_of("global_rope_theta", 160000), local = k.number_of("local_rope_theta", 10000);
  k.number("rope.freq_base", k.number_of("rope_parameters.full_attention.rope_theta", global));
  add_local_rope(k, local);
  k.text("rope.scaling.type", "none");
  k.count("attention.sliding_window", k.count_of("local_attention", 128));
  k.count("attention.sliding_window_pattern", kEvery);
}

void gemma_embedding_keys(ArchitectureKeys& k) {
  const int head_dim = k.model.config.head_dim;
  require_activation(k, Activation::GeluTanh, "hidden_activation");
  k.require(k.number_of("query_pre_attn_scalar", 256) == head_dim, "this query_pre_attn_scalar");
  add_local_rope(k, 1e4);
  add_listed_windows(k, k.count_of("sliding_window_pattern", 6));
}

// Positions begin at that of the first token; q, k and v are one matrix.
void encoder_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  const auto is = [&](std::string_view name) { return tensor.name.ends_with(name); };
  if (tensor.name == "position_embd.weight") {
    WeightView& rows = tensor.parts.front().pieces.front();
    const int64_t first = first_position(model.source);
    rows = {rows.dtype, rows.rows - first, rows.cols, rows.row(first)};
    tensor.shape[0] = rows.rows;
  }
  if (model.architecture == "nomic-bert") {
    if (is(".attn_k.weight") || is(".attn_v.weight")) return;
    if (is(".attn_q.weight")) {
      const std::string layer = tensor.name.substr(0, tensor.name.size() - std::string_view("attn_q.weight").size());
      for (const char* other : {"attn_k.weight", "attn_v.weight"}) {
        const DeclaredTensor& part = *model.find(layer + other);
        tensor.sources.push_back(part.pieces.front());
        tensor.shape[0] += part.shape[0];
      }
      tensor.parts.front().pieces = tensor.sources;
      tensor.name = layer + "attn_qkv.weight";
    }
  }
  out.push_back(std::move(tensor));
}

}  // namespace millrace
