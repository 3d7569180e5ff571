#include "models/draft_heads.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

bool has_tensor_like(const WeightSource& source, std::string_view ending) {
  const auto all = source.tensors();
  return std::any_of(all.begin(), all.end(), [&](const TensorInfo& tensor) { return tensor.name.ends_with(ending); });
}

// Layers are counted by their inputs: the stream before layer i is the output of layer i - 1. vLLM's key counts so,
// too; the key inside of eagle_config counts outputs.
std::vector<int> eagle3_layers(const WeightSource& source, int64_t layers) {
  const Config& keys = source.config();
  constexpr ConfigKey kOutputs{.hf = "eagle_config.eagle_aux_hidden_state_layer_ids"},
      kInputs{.hf = "eagle_aux_hidden_state_layer_ids"};
  if (!keys.optional_boolean({.hf = "eagle_config.use_aux_hidden_state"}).value_or(true))
    refuse(source, "EAGLE-3 without the hidden states of three layers");
  const auto outputs = keys.optional_array<int64_t>(kOutputs);
  const auto inputs = keys.optional_array<int64_t>(kInputs);
  std::vector<int64_t> found{2, layers / 2, layers - 3};
  if (inputs) found = *inputs;
  if (outputs) {
    found = *outputs;
    for (int64_t& layer : found) ++layer;
  }
  if (found.size() != 3) keys.fail_key(outputs ? kOutputs : kInputs, "must name three layers");
  std::vector<int> taps;
  for (const int64_t layer : found) {
    const bool fits = layer >= 0 && layer <= layers;
    if (!fits && (inputs || outputs)) keys.fail_key(outputs ? kOutputs : kInputs, "names a layer the model lacks");
    if (!fits) refuse(source, "EAGLE-3 for a model of " + std::to_string(layers) + " layers");
    taps.push_back(static_cast<int>(layer));
  }
  return taps;
}

}  // namespace

bool is_eagle3(const WeightSource& source) {
  const std::string& name = source.config().architecture();
  return source.convention() == WeightSource::Convention::HuggingFace && name.find("Eagle3") != std::string::npos;
}

bool carries_heads(const WeightSource& source) {
  if (is_eagle3(source) || find_architecture(source).make_heads == nullptr) return false;
  return has_tensor_like(source, is_gguf(source) ? ".nextn.eh_proj.weight" : ".eh_proj.weight") ||
         source.has("mtp.fc.weight");
}

FeatureTaps head_taps(const WeightSource& source, int64_t target_layers) {
  if (is_eagle3(source)) return {eagle3_layers(source, target_layers), false};
  return {{}, true};
}

std::unique_ptr<Model> make_draft_head(const WeightSource& source, Weights& w, StateLayout& state,
                                       const Model& target) {
  if (is_eagle3(source)) return make_eagle3(source, w, state, target);
  if (!carries_heads(source))
    fail(ErrorKind::Usage, "{}: carries no heads that predict further tokens", source.origin());
  w.ignore("");  // the target has the other tensors
  return find_architecture(source).make_heads(source, w, state, target);
}

// d2t holds differences: row i of the logits belongs to token i + d2t[i].
std::vector<int32_t> draft_vocabulary(const WeightSource& source, int64_t target_vocab) {
  if (!is_eagle3(source)) return {};
  const auto rows = source.config().optional_integer({.hf = "draft_vocab_size"}).value_or(target_vocab);
  const TensorInfo* d2t = source.find("d2t");
  if (d2t == nullptr && rows == target_vocab) return {};
  if (d2t == nullptr) fail(ErrorKind::BadFile, "{}: tensor 'd2t' is missing", source.origin());
  const bool is_long = d2t->dtype_name == "I64";
  if ((!is_long && d2t->dtype_name != "I32") || d2t->shape != std::vector<int64_t>{rows} || d2t->data == nullptr)
    fail(ErrorKind::BadFile, "{}: tensor 'd2t' is {} {}; expected I64 [{}]", source.origin(), d2t->dtype_name,
         to_string(d2t->shape), rows);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t difference = 0;
    if (is_long) {
      std::memcpy(&difference, d2t->data + i * 8, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, d2t->data + i * 4, 4);
      difference = narrow;
    }
    // Compared before the sum, which could overflow.
    if (difference < -i || difference >= target_vocab - i)
      fail(ErrorKind::BadFile, "{}: 'd2t' maps row {} outside of the vocabulary of {}", source.origin(), i,
           target_vocab);
    tokens.push_back(static_cast<int32_t>(i + difference));
  }
  return tokens;
}

NextTokenNames nextn_names(int64_t layer) {
  const std::string gguf = "blk." + std::to_string(layer) + ".nextn.",
                    hf = "model.layers." + std::to_string(layer) + ".";
  return {.embedding_norm = {gguf + "enorm.weight", hf + "enorm.weight"},
          .feature_norm = {gguf + "hnorm.weight", hf + "hnorm.weight"},
          .combine = {gguf + "eh_proj.weight", hf + "eh_proj.weight"},
          .norm = {gguf + "shared_head_norm.weight", hf + "shared_head.norm.weight"},
          .embedding = {gguf + "embed_tokens.weight", hf + "embed_tokens.weight"},
          .head = {gguf + "shared_head_head.weight", hf + "shared_head.head.weight"},
          .usual_norm = {"output_norm.weight", "model.norm.weight"}};
}

void load_next_token_head(Decoder& model, Weights& w, const NextTokenNames& names, const Model& target, float add) {
  const DecoderConfig& c = model.config();
  const ModelEnds ends = target.ends();
  MR_ASSERT(ends.embedding != nullptr && ends.head != nullptr);
  model.draft = DraftInput{.embedding_norm = w.vector(names.embedding_norm, c.hidden, add),
                           .feature_norm = w.vector(names.feature_norm, c.hidden, add),
                           .combine = w.linear({{names.combine, c.hidden}}, 2 * c.hidden)};
  model.norm = w.vector(w.has(names.norm) ? names.norm : names.usual_norm, c.hidden, add);
  model.embedding = w.has(names.embedding) ? w.table(names.embedding, c.vocab, c.hidden) : ends.embedding;
  model.head = w.has(names.head) ? w.linear({{names.head, c.vocab}}, c.hidden) : ends.head;
}

}  // namespace millrace
