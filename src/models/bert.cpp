// BERT, RoBERTa and XLM-RoBERTa: learned positions, a norm after each block, and cross-encoders on the first token.
// RoBERTa's positions begin behind the padding token's.
#include "models/encoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr DecoderKeys kKeys{.norm_epsilon = "layer_norm_eps",
                            .usual_heads = 12,
                            .usual_context = 512,
                            .usual_vocab = 30522,
                            .usual_feed_forward = 3072,
                            .usual_layers = 12,
                            .usual_epsilon = 1e-12};

// Prefix of the encoder's tensors in a Hugging Face folder.
std::string prefix_of(const Weights& w) {
  for (const char* prefix : {"bert.", "roberta."}) {
    if (w.has({"", std::string(prefix) + "embeddings.word_embeddings.weight"})) return prefix;
  }
  return "";
}

bool is_roberta(const WeightSource& source) {
  if (is_gguf(source)) return false;
  const std::string type = source.config().optional_string({.hf = "model_type"}).value_or("");
  const std::string& name = source.config().architecture();
  return type.find("roberta") != std::string::npos || type == "camembert" || name.find("oberta") != std::string::npos ||
         name.starts_with("Camembert");
}

// GGUF files of BERT cross-encoders lack the pooler, because llama.cpp's converter drops it.
void add_classifier(Weights& w, const std::string& hf, bool roberta, PoolingHead& head) {
  const int64_t hidden = head.width, labels = count_labels(w);
  const TensorName dense{"cls.weight", roberta ? "classifier.dense.weight" : hf + "pooler.dense.weight"};
  TensorName out{"cls.output.weight", roberta ? "classifier.out_proj.weight" : "classifier.weight"};
  const bool gguf = is_gguf(w.source());
  if (gguf && !w.has(out)) out.gguf = dense.gguf;
  if (!gguf || (w.has(dense) && out.gguf != dense.gguf))
    head.layers.push_back({w.linear({{dense, hidden}}, hidden), PoolingHead::Function::Tanh, {}});
  head.layers.push_back({w.linear({{out, labels}}, hidden), PoolingHead::Function::None, {}});
  head.kind = PoolKind::First;
  head.width = labels;
  head.scores = true;
}

void add_layer(Encoder& model, Weights::Layer at) {
  const DecoderConfig& c = model.config();
  EncoderLayer& layer = model.layers.emplace_back();
  if (const TensorName fused{"attn_qkv.weight", ""}; at.has(fused)) {
    layer.qkv = at.linear({{fused, c.qkv_dim()}}, c.hidden);
  } else {
    layer.qkv = at.linear({{{"attn_q.weight", "attention.self.query.weight"}, c.q_dim()},
                           {{"attn_k.weight", "attention.self.key.weight"}, c.kv_dim()},
                           {{"attn_v.weight", "attention.self.value.weight"}, c.kv_dim()}},
                          c.hidden);
  }
  layer.out = at.linear({{{"attn_output.weight", "attention.output.dense.weight"}, c.hidden}}, c.q_dim());
  layer.attention_norm = load_layer_norm(at, {"attn_output_norm", "attention.output.LayerNorm"}, c.hidden);
  layer.up = at.linear({{{"ffn_up.weight", "intermediate.dense.weight"}, c.feed_forward}}, c.hidden);
  layer.down = at.linear({{{"ffn_down.weight", "output.dense.weight"}, c.hidden}}, c.feed_forward);
  layer.feed_norm = load_layer_norm(at, {"layer_output_norm", "output.LayerNorm"}, c.hidden);
}

}  // namespace

int64_t first_position(const WeightSource& source) {
  return is_roberta(source) ? source.config().optional_integer({.hf = "pad_token_id"}).value_or(1) + 1 : 0;
}

std::unique_ptr<Model> make_bert(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const PoolingSettings pooling = read_pooling(source);
  const bool folder = !is_gguf(source), roberta = is_roberta(source);
  DecoderConfig c = read_encoder_config(source, pooling, kKeys);
  const std::string kind = keys.optional_string({.hf = "position_embedding_type"}).value_or("absolute");
  if (kind != "absolute") refuse(source, "position_embedding_type '" + kind + "'");
  if (keys.optional_boolean({.hf = "is_decoder"}).value_or(false)) refuse(source, "BERT as a decoder");
  const int64_t offset = first_position(source);
  const int64_t rows = keys.optional_integer({"max_position_embeddings", "context_length"}).value_or(512);
  if (rows <= offset) refuse(source, "a table of positions without room for a token");
  c.context = std::min(c.context, rows - offset);
  c.rotary_dim = 0;

  auto model = std::make_unique<Encoder>(c, state);
  model->activation = read_activation(source, "hidden_act", Activation::GeluErf);
  model->position_offset = offset;
  const std::string hf = prefix_of(w);
  const auto table = [&](const char* gguf, const char* name, int64_t n) {
    return w.table({gguf, hf + "embeddings." + name}, n, c.hidden);
  };
  model->embedding = table("token_embd.weight", "word_embeddings.weight", c.vocab);
  model->positions = table("position_embd.weight", "position_embeddings.weight", rows);
  const TensorInfo* types = source.find(folder ? hf + "embeddings.token_type_embeddings.weight" : "token_types.weight");
  if (types != nullptr && types->shape.size() == 2)
    model->types = table("token_types.weight", "token_type_embeddings.weight", types->shape[0]);
  model->embedding_norm = load_layer_norm(w, {"token_embd_norm", hf + "embeddings.LayerNorm"}, c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) add_layer(*model, {w, i, {"blk.{}.", hf + "encoder.layer.{}."}});

  model->head = load_pooling_head(w, pooling, c);
  if (is_classifier(w)) add_classifier(w, hf, roberta, model->head);
  // Heads of other tasks, and BERT's pooler, which embeddings do not use.
  if (folder) {
    for (const char* other : {"pooler.", "position_ids", "cls.", "lm_head."}) w.ignore(other);
  }
  return model;
}

}  // namespace millrace
