// Qwen 3: as Qwen 2, but with RMS norms of q and k before RoPE instead of biases.
#include <algorithm>

#include "base/error.h"
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// A reranker scores the last token: Qwen3ForSequenceClassification, or a GGUF file of Qwen3-Reranker, whose classifier
// holds the rows of "yes" and "no" of the output matrix.
bool load_ranking(const WeightSource& source, Weights& w, Decoder& model, const std::string& hf) {
  const DecoderConfig& c = model.config();
  const TensorName score{"cls.output.weight", "score.weight"};
  if (!w.has(score)) return false;
  const TensorInfo* matrix = source.find(is_gguf(source) ? score.gguf : score.hf);
  if (matrix->shape.size() != 2) fail(ErrorKind::BadFile, "{}: '{}' is no matrix", source.origin(), matrix->name);
  model.embedding = w.table({"token_embd.weight", hf + "embed_tokens.weight"}, c.vocab, c.hidden);
  model.norm = w.vector({"output_norm.weight", hf + "norm.weight"}, c.hidden);
  const int64_t labels = matrix->shape[0];
  model.pooling = PoolingHead{.kind = PoolKind::Last,
                              .layers = {{w.linear({{score, labels}}, c.hidden), PoolingHead::Function::None, {}}},
                              .width = labels,
                              .scores = true};
  w.ignore(is_gguf(source) ? "output.weight" : "lm_head.");
  return true;
}

}  // namespace

std::unique_ptr<Model> make_qwen3(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  const auto windows = upper_layer_windows(source, c);
  c.window = *std::max_element(windows.begin(), windows.end());  // a config may set a window that no layer uses
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const std::string hf = text_model_prefix(source);  // empty in Qwen3-Embedding
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    DecoderLayer& layer = model->add_layer(at, state);
    layer.window = windows[static_cast<size_t>(i)];
    load_qk_norms(at, c, /*whole=*/false, layer.attention);
  }
  if (!load_ranking(source, w, *model, hf)) model->load_ends(w, hf);
  return model;
}

}  // namespace millrace
