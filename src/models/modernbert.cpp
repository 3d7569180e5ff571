// ModernBERT: RoPE, norms before the blocks, a gated feed-forward without biases. Most layers attend to a window around
// each token and have the local rope; every third attends to the whole text and has the global rope.
#include "models/encoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr DecoderKeys kKeys{.norm_epsilon = "norm_eps",
                            .usual_heads = 12,
                            .usual_context = 8192,
                            .usual_vocab = 50368,
                            .usual_feed_forward = 1152,
                            .usual_layers = 22,
                            .usual_epsilon = 1e-5};
constexpr double kGlobalTheta = 160000, kLocalTheta = 10000;

std::vector<bool> local_layers(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const int64_t every =
      keys.optional_integer({"global_attn_every_n_layers", "attention.sliding_window_pattern"}, {1, 1000}).value_or(3);
  std::vector<bool> local;
  const auto types = keys.optional_array<std::string>({.hf = "layer_types"});
  if (types && static_cast<int64_t>(types->size()) != c.layers)
    keys.fail_key({.hf = "layer_types"}, "must name every layer");
  for (int64_t i = 0; i < c.layers; ++i)
    local.push_back(types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : i % every != 0);
  return local;
}

void add_classifier(const WeightSource& source, Weights& w, PoolingHead& head) {
  const int64_t hidden = head.width, labels = count_labels(w);
  const std::string kind = source.config().optional_string({.hf = "classifier_pooling"}).value_or("cls");
  if (kind != "cls" && kind != "mean") refuse(source, "classifier_pooling '" + kind + "'");
  const std::string function = source.config().optional_string({.hf = "classifier_activation"}).value_or("gelu");
  if (function != "gelu") refuse(source, "classifier_activation '" + function + "'");
  head.kind = kind == "cls" ? PoolKind::First : PoolKind::Mean;
  PoolingHead::Layer dense{w.linear({{{"cls.weight", "head.dense.weight"}, hidden}}, hidden),
                           PoolingHead::Function::Gelu};
  if (w.has({"cls.norm.weight", "head.norm.weight"}))
    dense.norm = load_layer_norm(w, {"cls.norm", "head.norm"}, hidden);
  head.layers.push_back(dense);
  head.layers.push_back(
      {w.linear({{{"cls.output.weight", "classifier.weight"}, labels}}, hidden), PoolingHead::Function::None, {}});
  head.width = labels;
  head.scores = true;
}

}  // namespace

std::unique_ptr<Model> make_modernbert(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const PoolingSettings pooling = read_pooling(source);
  const DecoderConfig c = read_encoder_config(source, pooling, kKeys);
  auto model = std::make_unique<Encoder>(c, state);
  model->norm_first = true;
  model->gated = true;
  model->activation = read_activation(source, "hidden_activation", Activation::GeluErf);
  const double global = keys.optional_number({.hf = "global_rope_theta"}).value_or(kGlobalTheta);
  const double local = keys.optional_number({.hf = "local_rope_theta"}).value_or(kLocalTheta);
  model->rope = w.placed(read_rope_frequencies(source, c, "full_attention", global));
  const ConfigKey own_key{"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"};
  const auto own = keys.optional_number(own_key);
  if (!(own.value_or(local) > 0)) keys.fail_key(own_key, "must be positive");
  model->local_rope = w.placed(plain_rope_frequencies(own.value_or(local), c.rotary_dim));
  const int64_t window =
      keys.optional_integer({"local_attention", "attention.sliding_window"}, {0, 1 << 30}).value_or(128);

  const std::string hf = w.has({"", "model.embeddings.tok_embeddings.weight"}) ? "model." : "";
  model->embedding = w.table({"token_embd.weight", hf + "embeddings.tok_embeddings.weight"}, c.vocab, c.hidden);
  model->embedding_norm = load_layer_norm(w, {"token_embd_norm", hf + "embeddings.norm"}, c.hidden);
  const auto is_local = local_layers(source, c);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    EncoderLayer& layer = model->layers.emplace_back();
    if (i > 0) layer.attention_norm = load_layer_norm(at, {"attn_norm", "attn_norm"}, c.hidden);
    layer.qkv = at.linear({{{"attn_qkv.weight", "attn.Wqkv.weight"}, c.qkv_dim()}}, c.hidden);
    layer.out = at.linear({{{"attn_output.weight", "attn.Wo.weight"}, c.hidden}}, c.q_dim());
    layer.feed_norm = load_layer_norm(at, {"ffn_norm", "mlp_norm"}, c.hidden);
    layer.up = at.gate_up({{{"ffn_up.weight", "mlp.Wi.weight"}, 2 * c.feed_forward}}, c.hidden, model->activation);
    layer.down = at.linear({{{"ffn_down.weight", "mlp.Wo.weight"}, c.hidden}}, c.feed_forward);
    layer.local_rope = is_local[static_cast<size_t>(i)];
    if (layer.local_rope) layer.window = static_cast<int>(window / 2 + 1);
  }
  model->final_norm = load_layer_norm(w, {"output_norm", hf + "final_norm"}, c.hidden);
  model->head = load_pooling_head(w, pooling, c);
  if (is_classifier(w)) {
    add_classifier(source, w, model->head);
  } else if (!is_gguf(source)) {
    for (const char* other : {"head.", "decoder."}) w.ignore(other);  // of the masked language model
  }
  return model;
}

}  // namespace millrace
