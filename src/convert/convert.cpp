#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "convert/adapter_fusion.h"
#include "convert/metadata.h"
#include "convert/tokenizer_metadata.h"
#include "formats/tensor_encoder.h"
#include "hardware/detect.h"
#include "kernels/kernel_set.h"
#include "models/model.h"

namespace millrace {
namespace {

// The model as its architecture declares it: names, pieces and sizes of all tensors. No weight is read.
struct DeclaredModel {
  DeclaredModel(const WeightSource& source, const std::shared_ptr<ThreadPool>& pool)
      : device(open_device({.threads = pool->size()})),
        ops(cpu_kernels(), *device, *pool, nullptr, {}),
        weights(source, ops),
        model(find_architecture(source).make(source, weights, state)) {
    weights.check_all_used();
  }

  std::unique_ptr<Device> device;
  Ops ops;
  Weights weights;
  StateLayout state;
  std::unique_ptr<Model> model;
};

// Views of the rows of [heads][2][half] in the order [heads][half][2]: pairs that are half a head apart become
// adjacent. A bias has rows of one value.
std::vector<WeightView> in_pairs(const DeclaredTensor& tensor, int64_t heads) {
  WeightView whole = tensor.pieces.front();
  if (tensor.shape.size() == 1) std::swap(whole.rows, whole.cols);
  const int64_t half = whole.rows / heads / 2;
  std::vector<WeightView> rows;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (const int64_t part : {0, 1})
        rows.push_back({whole.dtype, 1, whole.cols, whole.row((2 * head + part) * half + i)});
    }
  }
  return rows;
}

// A tensor of the file with everything that writing it needs.
struct Output {
  GgufTensor tensor;
  std::vector<WeightView> sources;  // as the folder stores them
  std::vector<WeightView> pieces;   // the same in the order of the file
  bool transposed = false;
  TensorChange change;
  std::string fused = {};  // the name under which the adapter changes it; empty: it does not
  int64_t paired = 0;      // heads whose rotary pairs become adjacent
};

class Conversion {
 public:
  Conversion(const WeightSource& source, const QuantizeRecipe& recipe, bool keeps_mxfp4,
             const std::filesystem::path& adapter, const std::shared_ptr<ThreadPool>& pool)
      : source_(source),
        recipe_(recipe),
        keeps_mxfp4_(keeps_mxfp4),
        architecture_(gguf_architecture(source)),
        declared_(source, pool),
        model_{source, declared_.model->config(), declared_.weights.declared(), architecture_},
        fusion_(adapter, declared_.weights, *declared_.model),
        computed_(rope_tensors(model_)) {
    check_complete();
    add_general();
    add_model_metadata(model_, metadata_);
    add_tokenizer_metadata(source, architecture_, model_.config.vocab, metadata_);
    for (const ComputedTensor& tensor : computed_) add_computed(tensor);
    std::set<std::string_view> names;  // an embedding that is also the output matrix is declared twice
    for (const DeclaredTensor& tensor : model_.tensors) {
      if (names.insert(tensor.gguf).second) add(tensor);
    }
  }

  const GgufMetadataBuilder& metadata() const { return metadata_; }
  std::span<const Output> outputs() const { return outputs_; }
  const AdapterFusion& fusion() const { return fusion_; }

 private:
  // Every tensor that the model uses must have a place in the file.
  void check_complete() const {
    std::set<const std::byte*> pieces;
    for (const DeclaredTensor& tensor : model_.tensors) {
      for (const WeightView& view : tensor.pieces) pieces.insert(view.data);
    }
    for (const std::string& name : declared_.weights.used()) {
      const TensorInfo& info = *source_.find(name);
      const WeightView view = source_.tensor(name, info.shape);
      const auto first = pieces.lower_bound(view.data);
      if (view.bytes() == 0 || (first != pieces.end() && *first < view.data + view.bytes())) continue;
      fail(ErrorKind::Unsupported, "{}: GGUF files of the architecture '{}' have no tensor for '{}'", source_.origin(),
           architecture_, name);
    }
  }

  void add_general() {
    metadata_.add_string("general.architecture", architecture_);
    metadata_.add_string("general.type", "model");
    const auto folder = std::filesystem::absolute(source_.origin()).lexically_normal();
    const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    metadata_.add_string("general.name", name.string());
    metadata_.add_u32("general.file_type", recipe_.file_type);
    metadata_.add_u32("general.quantization_version", 2);
  }

  void add_computed(const ComputedTensor& tensor) {
    const auto n = std::ssize(tensor.values);
    const WeightView view{DType::F32, 1, n, reinterpret_cast<const std::byte*>(tensor.values.data())};
    outputs_.push_back({{tensor.name, DType::F32, {n}}, {}, {view}});
  }

  void add(const DeclaredTensor& declared) {
    Output out{.tensor = {.name = own_name(architecture_, declared.gguf), .shape = declared.shape},
               .sources = declared.pieces,
               .pieces = declared.pieces,
               .transposed = declared.transposed,
               .change = {declared.add, declared.map}};
    // llama.cpp has the gate of a shared expert as a vector.
    if (declared.gguf.ends_with("ffn_gate_inp_shexp.weight")) out.tensor.shape = {declared.shape.back()};
    if (rotates_pairs(architecture_)) {
      const auto is = [&](const char* part) { return declared.gguf.find(part) != std::string::npos; };
      out.paired = is(".attn_q.") ? model_.config.heads : is(".attn_k.") ? model_.config.kv_heads : 0;
      if (out.paired > 0) out.pieces = in_pairs(declared, out.paired);
    }
    if (fusion_.changes(declared.gguf)) out.fused = declared.gguf;
    out.tensor.dtype = dtype_of(out.tensor, declared.pieces.front().dtype);
    outputs_.push_back(std::move(out));
  }

  DType dtype_of(const GgufTensor& tensor, DType stored) const {
    if (keeps_mxfp4_ && stored == DType::MXFP4) return stored;
    const TensorRole role{tensor.name, tensor.shape, model_.config.layers, model_.has("output.weight"),
                          model_.config.experts > 0};
    return dtype_for(recipe_, role).value_or(DType::F32);
  }

  const WeightSource& source_;
  const QuantizeRecipe& recipe_;
  bool keeps_mxfp4_;
  std::string architecture_;
  DeclaredModel declared_;
  ConvertedModel model_;
  AdapterFusion fusion_;
  std::vector<ComputedTensor> computed_;
  GgufMetadataBuilder metadata_;
  std::vector<Output> outputs_;
};

void write(const WeightSource& source, const Output& out, const AdapterFusion& fusion, TensorEncoder& encoder,
           ThreadPool& threads, GgufWriter& writer) {
  for (const WeightView& view : out.sources) source.fetch(view, threads);
  std::vector<std::byte> copy;
  if (!out.fused.empty()) {
    const WeightView whole = fusion.fused(out.fused, out.sources, out.transposed, copy, threads);
    const DeclaredTensor rows{.shape = {whole.rows, whole.cols}, .pieces = {whole}};
    encoder.write(out.paired > 0 ? in_pairs(rows, out.paired) : rows.pieces, out.tensor, writer, out.change);
  } else if (out.transposed) {
    const WeightView rows = transposed(out.sources, copy, threads);
    encoder.write({&rows, 1}, out.tensor, writer, out.change);
  } else {
    encoder.write(out.pieces, out.tensor, writer, out.change);
  }
  for (const WeightView& view : out.sources) source.release(view);
}

}  // namespace

const QuantizeRecipe& recipe_of_folder(const WeightSource& source) {
  std::map<DType, int64_t> bytes;
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.dtype && tensor.shape.size() > 1) bytes[*tensor.dtype] += static_cast<int64_t>(tensor.bytes);
  }
  bytes.erase(DType::MXFP4);  // kept beside the others
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const DType dtype = most == bytes.end() || is_quantized(most->first) ? DType::BF16 : most->first;
  return *find_recipe(name(dtype));
}

std::filesystem::path converted_name(const WeightSource& source, const QuantizeRecipe& recipe) {
  const auto folder = std::filesystem::absolute(source.origin()).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return folder / fmt::format("{}-{}.gguf", name.string(), recipe.name);
}

QuantizeSummary convert_folder(const WeightSource& source, const ConvertOptions& options, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress) {
  if (source.convention() != WeightSource::Convention::HuggingFace) {
    fail(ErrorKind::Usage, "{}: is not a Hugging Face folder; 'millrace quantize' writes a GGUF file in another format",
         source.origin());
  }
  refuse_to_replace(options.out, source);
  const QuantizeRecipe& recipe = options.recipe != nullptr ? *options.recipe : recipe_of_folder(source);
  // Planning runs the architecture's own code, which needs a pool of its own.
  const Conversion conversion(source, recipe, options.recipe == nullptr, options.adapter,
                              std::make_shared<ThreadPool>(1));
  std::vector<GgufTensor> tensors;
  int64_t done = 0, total = 0;
  for (const Output& out : conversion.outputs()) {
    tensors.push_back(out.tensor);
    total += *element_count(out.tensor.shape);
  }
  GgufWriter writer(options.out, conversion.metadata(), tensors);
  TensorEncoder encoder(source.origin(), threads);
  QuantizeSummary summary;
  for (const Output& out : conversion.outputs()) {
    write(source, out, conversion.fusion(), encoder, threads, writer);
    const int64_t elements = *element_count(out.tensor.shape);
    for (const WeightView& view : out.sources) summary.bytes_in += static_cast<int64_t>(view.bytes());
    summary.bytes_out += static_cast<int64_t>(row_bytes(out.tensor.dtype, elements));
    summary.tensors += 1;
    progress(done += elements, total);
  }
  writer.finish();
  return summary;
}

}  // namespace millrace
