// Nomic BERT: as BERT, with RoPE instead of learned positions, a gated feed-forward and no biases. Folders have the
// names of the model's authors or those of transformers 5.
#include "models/encoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr int64_t kTrained = 2048;  // beyond it the authors' code changes the RoPE frequencies

DecoderKeys keys_of(const WeightSource& source) {
  DecoderKeys keys{.norm_epsilon = "layer_norm_eps",
                   .usual_heads = 12,
                   .usual_context = kTrained,
                   .usual_vocab = 30528,
                   .usual_feed_forward = 3072,
                   .usual_layers = 12,
                   .usual_epsilon = 1e-12};
  if (!source.config().has({.hf = "n_embd"})) return keys;
  keys.layers = "n_layer";
  keys.hidden = "n_embd";
  keys.feed_forward = "n_inner";
  keys.heads = "n_head";
  keys.context = "n_positions";
  keys.norm_epsilon = "layer_norm_epsilon";
  return keys;
}

// Settings of the authors' config that change results.
void check_config(const WeightSource& source) {
  const Config& c = source.config();
  for (const char* flag : {"prenorm", "rotary_emb_interleaved", "use_rms_norm", "parallel_block", "qkv_proj_bias",
                           "mlp_fc1_bias", "mlp_fc2_bias", "causal"}) {
    if (c.optional_boolean({.hf = flag}).value_or(false)) refuse(source, std::string("'") + flag + "'");
  }
  if (c.optional_number({.hf = "rotary_emb_fraction"}).value_or(1) != 1) refuse(source, "'rotary_emb_fraction'");
  if (c.has({.hf = "rotary_emb_scale_base"})) refuse(source, "'rotary_emb_scale_base'");
  if (c.optional_integer({"moe_every_n_layers", "moe_every_n_layers"}).value_or(0) > 0)
    refuse(source, "a mixture of experts");
  const std::string activation = c.optional_string({.hf = "activation_function"}).value_or("swiglu");
  if (activation != "swiglu") refuse(source, "activation '" + activation + "'");
}

void add_layer(Encoder& model, Weights::Layer at, bool authors) {
  const DecoderConfig& c = model.config();
  EncoderLayer& layer = model.layers.emplace_back();
  const auto name = [&](const char* gguf, const char* theirs, const char* hf) {
    return TensorName{gguf, authors ? theirs : hf};
  };
  if (authors || is_gguf(at.weights().source())) {
    layer.qkv = at.linear({{{"attn_qkv.weight", "attn.Wqkv.weight"}, c.qkv_dim()}}, c.hidden);
  } else {
    layer.qkv = at.linear({{{"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()},
                           {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                           {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}},
                          c.hidden);
  }
  layer.out =
      at.linear({{name("attn_output.weight", "attn.out_proj.weight", "self_attn.o_proj.weight"), c.hidden}}, c.q_dim());
  layer.attention_norm = load_layer_norm(at, name("attn_output_norm", "norm1", "post_attention_layernorm"), c.hidden);
  layer.up = at.gate_up({{name("ffn_gate.weight", "mlp.fc12.weight", "mlp.gate_proj.weight"), c.feed_forward},
                         {name("ffn_up.weight", "mlp.fc11.weight", "mlp.up_proj.weight"), c.feed_forward}},
                        c.hidden, model.activation);
  layer.down =
      at.linear({{name("ffn_down.weight", "mlp.fc2.weight", "mlp.down_proj.weight"), c.hidden}}, c.feed_forward);
  layer.feed_norm = load_layer_norm(at, name("layer_output_norm", "norm2", "post_mlp_layernorm"), c.hidden);
}

}  // namespace

std::unique_ptr<Model> make_nomic_bert(const WeightSource& source, Weights& w, StateLayout& state) {
  check_config(source);
  const PoolingSettings pooling = read_pooling(source);
  DecoderConfig c = read_encoder_config(source, pooling, keys_of(source));
  c.context = std::min(c.context, source.config().optional_integer({.hf = "max_trained_positions"}).value_or(kTrained));
  auto model = std::make_unique<Encoder>(c, state);
  const double theta = source.config().optional_number({.hf = "rotary_emb_base"}).value_or(1000);
  model->rope = w.placed(read_rope_frequencies(source, c, "", theta));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  model->gated = true;
  std::string hf;
  for (const char* prefix : {"nomic_bert.", "bert."}) {
    if (w.has({"", std::string(prefix) + "embeddings.word_embeddings.weight"})) hf = prefix;
  }
  const bool authors = w.has({"", hf + "emb_ln.weight"});
  model->embedding = w.table({"token_embd.weight", hf + "embeddings.word_embeddings.weight"}, c.vocab, c.hidden);
  const TensorName types{"token_types.weight", hf + "embeddings.token_type_embeddings.weight"};
  if (const TensorInfo* found = source.find(is_gguf(source) ? types.gguf : types.hf);
      found != nullptr && found->shape.size() == 2)
    model->types = w.table(types, found->shape[0], c.hidden);
  model->embedding_norm =
      load_layer_norm(w, {"token_embd_norm", hf + (authors ? "emb_ln" : "embeddings.LayerNorm")}, c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) {
    add_layer(*model, {w, i, {"blk.{}.", hf + (authors ? "encoder.layers.{}." : "layers.{}.")}}, authors);
  }
  model->head = load_pooling_head(w, pooling, c);
  if (!is_gguf(source)) {
    for (const char* other : {"pooler.", "cls."}) w.ignore(other);
  }
  return model;
}

}  // namespace millrace
