#include "models/decoder.h"

#include <algorithm>
#include <cmath>

namespace millrace {

Decoder::Decoder(DecoderConfig c) : score_scale(1 / std::sqrt(float(c.head_dim))), config_(std::move(c)) {}

DecoderLayer& Decoder::add_bare_layer(StateLayout& state) {
  DecoderLayer& layer = layers.emplace_back();
  layer.window = config_.window;
  layer.state = state.paged({config_.kv_heads, config_.head_dim, config_.head_dim});
  return layer;
}

DecoderLayer& Decoder::add_attention(Weights::Layer& at, StateLayout& state) {
  DecoderLayer& layer = add_bare_layer(state);
  layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, config_.hidden);
  layer.attention = load_attention(at, config_);
  // GGUF files of some architectures name the norm before the feed-forward after the one behind the attention.
  const char* feed_norm = at.has({"post_attention_norm.weight", ""}) && !at.has({"ffn_norm.weight", ""})
                              ? "post_attention_norm.weight"
                              : "ffn_norm.weight";
  layer.feed_norm = at.vector({feed_norm, "post_attention_layernorm.weight"}, config_.hidden);
  return layer;
}

DecoderLayer& Decoder::add_layer(Weights::Layer& at, StateLayout& state) {
  DecoderLayer& layer = add_attention(at, state);
  layer.feed = load_feed_forward(at, config_, activation);
  return layer;
}

DecoderLayer& Decoder::add_mixture_layer(Weights::Layer& at, StateLayout& state, const RouterSettings& settings) {
  if (!has_experts(at)) return add_layer(at, state);
  DecoderLayer& layer = add_attention(at, state);
  layer.experts = load_experts(at, config_, settings, activation);
  return layer;
}

DecoderLayer& Decoder::add_latent_layer(Weights::Layer& at, StateLayout& state, const LatentSizes& sizes,
                                        const RouterSettings& settings) {
  DecoderLayer& layer = layers.emplace_back();
  layer.state = state.paged(sizes.state());
  layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, config_.hidden);
  layer.latent = load_latent_attention(at, config_, sizes);
  layer.attention.out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, config_.hidden}},
                                  int64_t{sizes.heads} * sizes.value);
  layer.feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, config_.hidden);
  if (has_experts(at)) {
    layer.experts = load_experts(at, config_, settings, activation);
  } else {
    layer.feed = load_feed_forward(at, config_, activation);
  }
  return layer;
}

DecoderLayer& Decoder::add_post_norm_layer(Weights::Layer& at, StateLayout& state) {
  DecoderLayer& layer = add_bare_layer(state);
  layer.attention = load_attention(at, config_);
  layer.post_attention_norm =
      at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, config_.hidden);
  layer.feed = load_feed_forward(at, config_, activation);
  layer.post_feed_norm = at.vector({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}, config_.hidden);
  return layer;
}

void Decoder::load_ends(Weights& w, const std::string& hf, float add) {
  const TensorName table{"token_embd.weight", hf + "embed_tokens.weight"};
  embedding = w.table(table, config_.vocab, config_.hidden);
  norm = w.vector({"output_norm.weight", hf + "norm.weight"}, config_.hidden, add);
  TensorName own{"output.weight", "lm_head.weight"};
  if (!w.has(own) && w.has({"", "language_model.lm_head.weight"})) own.hf = "language_model.lm_head.weight";
  head = load_output_head(w, config_, own, table);
}

// Divides the residual stream by m instead, which costs no op. Every norm of the stream then gives the same result with
// epsilon / m^2: x / sqrt(mean(x^2) + e) = (x / m) / sqrt(mean((x / m)^2) + e / m^2).
void Decoder::multiply_blocks_by(double m) {
  multiplied_ = true;
  embedding_scale = static_cast<float>(embedding_scale / m);
  config_.norm_epsilon = static_cast<float>(config_.norm_epsilon / (m * m));
}

// Features of the last layer are wanted for all rows, so that the pass is narrowed behind that layer only.
bool Decoder::reads_all_rows() const {
  return taps.last || std::find(taps.layers.begin(), taps.layers.end(), std::ssize(layers)) != taps.layers.end();
}

// `layer`: the one that reads `hidden` next.
void Decoder::keep_features(Pass& p, int layer, Matrix hidden) const {
  for (size_t i = 0; i < taps.layers.size(); ++i) {
    if (taps.layers[i] == layer)
      p.ops.copy(hidden, p.features.columns(static_cast<int64_t>(i) * hidden.cols, hidden.cols));
  }
}

// The next pass of an EAGLE-3 head continues from the residual stream, that of an MTP head from its norm, as in SGLang.
void Decoder::finish_draft(Pass& p, Matrix hidden) const {
  p.features = p.buffer("features", hidden.cols);
  if (draft->combine == nullptr) {
    p.ops.copy(hidden, p.features);
    return p.head(p.rms_norm(hidden, norm), head);
  }
  p.rms_norm(hidden, norm, p.features);
  p.head(p.features, head);
}

bool Decoder::keeps_row_order() const {
  return std::none_of(layers.begin(), layers.end(), [](const auto& l) { return l.latent || l.delta; });
}

void Decoder::forward(Pass& p) const {
  const Rope global = p.rope(rope, rope_style);
  const Rope local = local_rope.table != nullptr ? p.rope(local_rope, rope_style, "local rope angles") : global;
  const Rope ropes[] = {global, local, {}};  // by LayerRope
  const LatentForms forms = layers.front().latent
                                ? choose_latent_forms(p, layers.front().latent->sizes, layers.front().state)
                                : LatentForms();
  const DraftStream stream = draft ? begin_draft(p, *draft, *embedding, embedding_scale) : DraftStream();
  const bool reads_both = draft && draft->combine == nullptr;  // only the first layer, and there is one
  Matrix hidden = draft ? stream.hidden : p.embed(*embedding, embedding_scale);
  if (taps.any()) p.features = p.buffer("features", hidden.cols * std::max<int64_t>(1, std::ssize(taps.layers)));
  int index = 0;
  for (const DecoderLayer& layer : layers) {
    const AttentionSettings settings{config_.heads, score_scale, score_cap, layer.window, layer.sinks, bidirectional};
    keep_features(p, index++, hidden);
    const Normed input = reads_both ? p.rms_norm(stream.both, nullptr) : p.rms_norm(hidden, layer.attention_norm);
    const Rope& own_rope = ropes[static_cast<size_t>(layer.rope)];
    Matrix attended = layer.delta ? delta_net_block(p, *layer.delta, input)
                      : layer.latent
                          ? latent_attention_block(p, *layer.latent, input, layer.state, own_rope, settings, forms)
                          : attention_block(p, layer.attention, input, layer.state, own_rope, settings, query_scale);
    if (residual_from_norm) p.rms_norm(hidden, layer.attention_norm, hidden);
    if (&layer == &layers.back() && !pooling && !reads_all_rows()) p.narrow({&hidden, &attended});
    add_block(p, attended, layer.attention.out, layer.post_attention_norm, hidden);

    if (layer.experts) {
      add_experts(p, *layer.experts, p.rms_norm(hidden, layer.feed_norm), activation, hidden);
      continue;
    }
    const Matrix feed = p.gated_linear(p.rms_norm(hidden, layer.feed_norm), layer.feed.gate_up, activation);
    if (residual_from_norm) p.rms_norm(hidden, layer.feed_norm, hidden);
    add_block(p, feed, layer.feed.down, layer.post_feed_norm, hidden);
  }
  if (pooling) {
    p.rms_norm(hidden, norm, hidden);
    return pooling->forward(p, hidden);
  }
  if (draft) return finish_draft(p, hidden);
  keep_features(p, index, hidden);
  if (taps.last) {
    p.rms_norm(hidden, norm, p.features);
    p.last = p.features;
    p.narrow({&p.last});
    p.head(p.last, head);
  } else {
    if (reads_all_rows()) p.narrow({&hidden});
    p.head(p.rms_norm(hidden, norm), head);
  }
  if (logit_scale != 1) p.ops.scale(p.logits, logit_scale);
  if (logit_cap != 0) p.ops.softcap(p.logits, logit_cap);
}

}  // namespace millrace
