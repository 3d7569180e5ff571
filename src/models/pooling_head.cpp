#include "models/pooling_head.h"

namespace millrace {

void PoolingHead::forward(Pass& p, Matrix hidden) const {
  constexpr std::string_view kNames[] = {"head 0", "head 1", "head 2", "head 3"};
  Matrix x = p.pool(hidden, kind);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const Matrix y = p.buffer(kNames[i % std::size(kNames)], p.ops.working(), x.rows, layer.linear->n);
    p.linear(x, layer.linear, y);
    if (layer.function == Function::Tanh) p.ops.softcap(y, 1);  // 1 tanh(y / 1)
    if (layer.function == Function::Gelu) p.ops.activate(Activation::GeluErf, y, nullptr, y);
    if (layer.norm) p.layer_norm(y, layer.norm->weight, layer.norm->bias, y);
    x = y;
  }
  p.last = x;
}

namespace {

constexpr const char* kDense[] = {"dense_2.weight", "dense_3.weight"};  // EmbeddingGemma's in GGUF files

}  // namespace

PoolingHead load_pooling_head(Weights& w, const PoolingSettings& settings, const DecoderConfig& c) {
  PoolingHead head;
  head.kind = settings.kind.value_or(PoolKind::Mean);
  head.width = c.hidden;
  const auto add = [&](const TensorName& name, int64_t in, int64_t out, PoolingHead::Function function) {
    if (in != head.width) refuse(w.source(), "a dense module whose input is not the output before it");
    head.layers.push_back({w.linear({{name, out}}, in), function, {}});
    head.width = out;
  };
  for (size_t i = 0; i < settings.dense.size(); ++i) {
    const auto& dense = settings.dense[i];
    const bool in_gguf = i < std::size(kDense) && !dense.tanh && c.architecture == "Gemma3TextModel";
    add({in_gguf ? kDense[i] : "", dense.name + "weight"}, dense.in, dense.out,
        dense.tanh ? PoolingHead::Function::Tanh : PoolingHead::Function::None);
  }
  if (!is_gguf(w.source())) return head;
  for (const char* name : kDense) {
    const TensorInfo* found = w.source().find(name);
    if (found == nullptr) continue;
    if (found->shape.size() != 2) fail(ErrorKind::BadFile, "{}: '{}' is no matrix", w.source().origin(), name);
    add({name, ""}, found->shape[1], found->shape[0], PoolingHead::Function::None);
  }
  return head;
}

bool is_classifier(const Weights& w) {
  if (is_gguf(w.source())) return w.has({"cls.weight", ""}) || w.has({"cls.output.weight", ""});
  return w.source().config().architecture().ends_with("ForSequenceClassification");
}

// Hugging Face configs write num_labels only if it is not the length of id2label; the matrix has it.
int64_t count_labels(const Weights& w) {
  for (const char* name : {"cls.output.weight", "cls.weight", "classifier.out_proj.weight", "classifier.weight"}) {
    const TensorInfo* found = w.source().find(name);
    if (found == nullptr) continue;
    if (found->shape.size() == 2) return found->shape[0];
    fail(ErrorKind::BadFile, "{}: '{}' is no matrix", w.source().origin(), name);
  }
  fail(ErrorKind::BadFile, "{}: the classifier has no output matrix", w.source().origin());
}

}  // namespace millrace
