// EAGLE-3: one Llama layer whose attention reads the embedding of a token and the target's hidden state of the token
// before it, with logits over a part of the target's vocabulary. Names and switches as in vLLM and SGLang.
#include "base/error.h"
#include "models/draft_heads.h"

namespace millrace {
namespace {

void check_sizes(const WeightSource& source, const DecoderConfig& c, const DecoderConfig& target) {
  if (c.vocab != target.vocab)
    fail(ErrorKind::Usage, "{}: cannot draft for this model: it has {} tokens, not {}", source.origin(), c.vocab,
         target.vocab);
  if (c.layers != 1) refuse(source, "EAGLE-3 with " + std::to_string(c.layers) + " layers");
  const int64_t width = source.config().optional_integer({.hf = "target_hidden_size"}).value_or(target.hidden);
  if (width != target.hidden)
    fail(ErrorKind::Usage, "{}: cannot draft for this model: it reads hidden states of {} values, not {}",
         source.origin(), width, target.hidden);
}

DecoderLayer& add_layer(Decoder& model, Weights::Layer& at, StateLayout& state) {
  const DecoderConfig& c = model.config();
  DecoderLayer& layer = model.add_bare_layer(state);
  layer.attention.qkv = at.linear({{{"", "self_attn.q_proj.weight"}, c.q_dim()},
                                   {{"", "self_attn.k_proj.weight"}, c.kv_dim()},
                                   {{"", "self_attn.v_proj.weight"}, c.kv_dim()}},
                                  2 * c.hidden);
  layer.attention.out = at.linear({{{"", "self_attn.o_proj.weight"}, c.hidden}}, c.q_dim());
  layer.feed_norm = at.vector({"", "post_attention_layernorm.weight"}, c.hidden);
  layer.feed = load_feed_forward(at, c, model.activation);
  return layer;
}

}  // namespace

std::unique_ptr<Model> make_eagle3(const WeightSource& source, Weights& w, StateLayout& state, const Model& target) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source);
  check_sizes(source, c, target.config());
  const int64_t vocab = c.vocab;
  c.vocab = keys.optional_integer({.hf = "draft_vocab_size"}, {1, vocab}).value_or(vocab);
  c.window = 0;
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);

  const std::string top = w.has({"", "model.fc.weight"}) ? "model." : "";
  const std::string middle = w.has({"", top + "layers.0.hidden_norm.weight"}) ? "layers.0." : "midlayer.";
  Weights::Layer at(w, 0, {"", top + middle});
  add_layer(*model, at, state);
  model->draft = DraftInput{.reduce = w.linear({{{"", top + "fc.weight"}, c.hidden}}, 3 * target.config().hidden),
                            .embedding_norm = at.vector({"", "input_layernorm.weight"}, c.hidden),
                            .feature_norm = at.vector({"", "hidden_norm.weight"}, c.hidden),
                            .adds_to_norm = keys.optional_boolean({.hf = "norm_before_residual"}).value_or(false)};
  const TensorName table{"", top + "embed_tokens.weight"};
  const bool shares = !w.has(table) && target.ends().embedding != nullptr && target.config().hidden == c.hidden;
  model->embedding = shares ? target.ends().embedding : w.table(table, vocab, c.hidden);
  model->norm = w.vector({"", top + "norm.weight"}, c.hidden);
  model->head = w.linear({{{"", "lm_head.weight"}, c.vocab}}, c.hidden);
  for (const char* map : {"d2t", "t2d"}) w.ignore(map);
  return model;
}

}  // namespace millrace
