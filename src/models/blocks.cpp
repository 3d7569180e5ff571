#include "models/blocks.h"

#include <fmt/format.h>

namespace millrace {

void require_attention_biases(const Weights::Layer& at) {
  const WeightSource& source = at.weights().source();
  if (is_gguf(source)) return;
  const auto is_set = [&](std::string_view flag) { return source.config().optional_boolean({.hf = flag}) == true; };
  if (!is_set("attention_bias") && !is_set("qkv_bias")) return;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) at.require({"", fmt::format("self_attn.{}.bias", name)});
}

AttentionWeights load_attention(Weights::Layer& at, const DecoderConfig& c) {
  require_attention_biases(at);
  return {
      .qkv = at.linear({{{"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()},
                        {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                        {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}},
                       c.hidden),
      .out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, c.hidden}}, c.q_dim()),
  };
}

void load_qk_norms(Weights::Layer& at, const DecoderConfig& c, bool whole, AttentionWeights& attention) {
  attention.q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_norm.weight"}, whole ? c.q_dim() : c.head_dim);
  attention.k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_norm.weight"}, whole ? c.kv_dim() : c.head_dim);
}

FeedForwardWeights load_feed_forward(Weights::Layer& at, const DecoderConfig& c, Activation activation) {
  return {
      .gate_up = at.gate_up({{{"ffn_gate.weight", "mlp.gate_proj.weight"}, c.feed_forward},
                             {{"ffn_up.weight", "mlp.up_proj.weight"}, c.feed_forward}},
                            c.hidden, activation),
      .down = at.linear({{{"ffn_down.weight", "mlp.down_proj.weight"}, c.hidden}}, c.feed_forward),
  };
}

Matrix attention_block(Pass& p, const AttentionWeights& w, const Normed& x, int state, const Rope& rope,
                       const AttentionSettings& settings, const QueryScale& query_scale) {
  const DecoderConfig& c = p.config;
  const int64_t gate = w.gated ? c.q_dim() : 0;
  const Matrix qkv = p.buffer("qkv", c.qkv_dim() + gate), attended = p.buffer("attended", c.q_dim());
  const Matrix q = qkv.columns(0, c.q_dim()), k = qkv.columns(c.q_dim() + gate, c.kv_dim());
  const Matrix v = qkv.columns(c.q_dim() + gate + c.kv_dim(), c.kv_dim());
  p.linear(x, w.qkv, qkv);
  if (w.norms_after_rope) {
    p.rotate(q, c.heads, rope);
    p.rotate(k, c.kv_heads, rope);
  }
  const auto is_per_head = [&](const Vector* norm) { return norm != nullptr && norm->n == c.head_dim; };
  const bool are_last = !w.norms_after_rope && w.clamp == 0 && query_scale.beta == 0;  // before attention
  AttentionSettings with = settings;
  if (are_last && is_per_head(w.q_norm) && is_per_head(w.k_norm)) {
    with.q_norm = w.q_norm;
    with.k_norm = w.k_norm;
  } else {
    if (w.q_norm != nullptr) p.group_norm(q, w.q_norm);
    if (w.k_norm != nullptr) p.group_norm(k, w.k_norm);
  }
  if (w.clamp != 0) p.ops.clamp(qkv, w.clamp);
  if (query_scale.beta != 0) p.ops.scale_by_position(q, query_scale.beta, query_scale.period, p.batch.positions);
  p.attend(state, q, k, v, w.norms_after_rope ? Rope{} : rope, with, attended);
  if (w.gated) p.ops.scale_by_sigmoid(attended, qkv.columns(c.q_dim(), gate));
  return attended;
}

RopeStyle style_of_pairs(Weights& weights, const DecoderConfig& c) {
  weights.paired_heads = {c.heads, c.kv_heads};
  return is_gguf(weights.source()) ? RopeStyle::Interleaved : RopeStyle::Halves;
}

void add_block(Pass& p, Matrix x, const Linear* linear, const Vector* post_norm, Matrix hidden) {
  if (post_norm == nullptr) return p.add_linear(x, linear, hidden);
  const Matrix branch = p.buffer("branch", DType::F32, x.rows, hidden.cols);
  p.linear(x, linear, branch);
  p.add(hidden, p.rms_norm(branch, post_norm));
}

void skip_further_layers(Weights& weights, DecoderConfig& c) {
  const WeightSource& source = weights.source();
  const Config& keys = source.config();
  const char* hf = keys.has({.hf = "num_mtp_layers"}) ? "num_mtp_layers" : "num_nextn_predict_layers";
  const int64_t further =
      keys.optional_integer({hf, "nextn_predict_layers"}, {0, 64}).value_or(is_gguf(source) ? 0 : 1);
  if (is_gguf(source)) c.layers -= further;
  if (c.layers < 1) keys.fail_key({.gguf = "nextn_predict_layers"}, "must be less than the number of layers");
  for (int64_t i = c.layers; i < c.layers + further; ++i)
    weights.ignore((is_gguf(source) ? "blk." : "model.layers.") + std::to_string(i) + ".");
}

Activation read_activation(const WeightSource& source, std::string_view key, Activation usual) {
  const auto named = source.config().optional_string({.hf = key});
  if (!named) return usual;
  if (*named == "silu" || *named == "swish") return Activation::Silu;
  if (*named == "gelu" || *named == "gelu_python") return Activation::GeluErf;
  if (*named == "gelu_pytorch_tanh" || *named == "gelu_new" || *named == "gelu_fast") return Activation::GeluTanh;
  if (*named == "relu") return Activation::Relu;
  if (*named == "relu2") return Activation::ReluSquared;
  refuse(source, "activation '" + *named + "'");
}

TensorName output_head_name(const Weights& weights, const TensorName& own, const TensorName& tied) {
  const bool may_tie = weights.source().config().optional_boolean({.hf = "tie_word_embeddings"}).value_or(true);
  return weights.has(own) || !may_tie ? own : tied;
}

const Linear* load_output_head(Weights& weights, const DecoderConfig& config, const TensorName& own,
                               const TensorName& tied) {
  return weights.linear({{.name = output_head_name(weights, own, tied), .rows = config.vocab, .bias_of = own}},
                        config.hidden);
}

std::string text_model_prefix(const WeightSource& source) {
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    if (source.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  if (source.find("embed_tokens.weight") != nullptr) return "";  // saved without the output matrix
  return "model.";
}

double gemma_score_divisor(const WeightSource& source, const DecoderConfig& c, int64_t layers_of_27b) {
  if (is_gguf(source)) return c.layers == layers_of_27b ? double(c.hidden) / c.heads : c.head_dim;
  return source.config().optional_number({.hf = "query_pre_attn_scalar"}).value_or(c.head_dim);
}

std::vector<int> layer_windows(const WeightSource& source, const DecoderConfig& c, int64_t pattern) {
  std::vector<int> windows;
  constexpr ConfigKey kList{.gguf = "attention.sliding_window_pattern"};
  if (source.config().has_list(kList)) {
    const auto slides = source.config().array<bool>(kList);
    if (static_cast<int64_t>(slides.size()) != c.layers) source.config().fail_key(kList, "must name every layer");
    for (const bool slide : slides) windows.push_back(slide ? c.window : 0);
    return windows;
  }
  const auto types = source.config().optional_array<std::string>({.hf = "layer_types"});
  if (types && static_cast<int64_t>(types->size()) != c.layers)
    source.config().fail_key({.hf = "layer_types"}, "must name every layer");
  for (int64_t i = 0; i < c.layers; ++i) {
    if (types && (*types)[static_cast<size_t>(i)] != "sliding_attention" &&
        (*types)[static_cast<size_t>(i)] != "full_attention") {
      refuse(source, "layer type '" + (*types)[static_cast<size_t>(i)] + "'");
    }
    const bool slides =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : pattern == 0 || (i + 1) % pattern != 0;
    windows.push_back(slides ? c.window : 0);
  }
  return windows;
}

std::vector<int> upper_layer_windows(const WeightSource& source, const DecoderConfig& c) {
  // GGUF files lack these keys, so Qwen from GGUF has no window.
  if (!source.config().optional_boolean({.hf = "use_sliding_window"}).value_or(false))
    return std::vector<int>(static_cast<size_t>(c.layers), 0);
  if (source.config().has({.hf = "layer_types"})) return layer_windows(source, c, 1);
  const int64_t full = source.config().optional_integer({.hf = "max_window_layers"}).value_or(c.layers);
  std::vector<int> windows;
  for (int64_t i = 0; i < c.layers; ++i) windows.push_back(i >= full ? c.window : 0);
  return windows;
}

}  // namespace millrace
