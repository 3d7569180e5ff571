#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "convert/adapter_fusion.h"
#include "convert/architecture_keys.h"
#include "convert/metadata.h"
#include "convert/tokenizer_metadata.h"
#include "engine/declared_model.h"
#include "formats/tensor_encoder.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

// A tensor of the file with everything that writing it needs.
struct Output {
  GgufTensor tensor;
  FileTensor from;
};

class Conversion {
 public:
  Conversion(const WeightSource& source, const QuantizeRecipe& recipe, bool keeps_mxfp4,
             const std::filesystem::path& adapter, const std::shared_ptr<ThreadPool>& pool)
      : source_(source),
        recipe_(recipe),
        keeps_mxfp4_(keeps_mxfp4),
        architecture_(gguf_architecture(source)),
        declared_(source, *pool),
        model_{source, declared_.model->config(), declared_.weights.declared(), architecture_},
        fusion_(adapter, declared_.weights, *declared_.model),
        computed_(rope_tensors(model_)) {
    for (ComputedTensor& bias : missing_biases(model_)) computed_.push_back(std::move(bias));
    check_complete();
    if (!adapter.empty() && find_rule(architecture_)->edit != nullptr) {
      fail(ErrorKind::Unsupported,
           "{}: an adapter cannot be fused: files of the architecture '{}' store tensors in another form",
           source.origin(), architecture_);
    }
    add_general();
    add_model_metadata(model_, metadata_);
    add_tokenizer_metadata(source, architecture_, model_.config.vocab, metadata_);
    for (const ComputedTensor& tensor : computed_) add_computed(tensor);
    for (FileTensor& tensor : file_tensors(model_)) {
      const DType dtype = dtype_of(tensor);
      outputs_.push_back({{tensor.name, dtype, tensor.shape}, std::move(tensor)});
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
    outputs_.push_back({{tensor.name, DType::F32, {n}}, {.parts = {{{view}, {}}}}});
  }

  DType dtype_of(const FileTensor& tensor) const {
    const DType stored = tensor.parts.front().pieces.front().dtype;
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

// The rows of matrices that the folder stores as columns.
WeightView rows_of(const std::vector<WeightView>& columns, std::vector<std::byte>& copy, ThreadPool& threads) {
  if (can_transpose(columns.front().dtype)) return transposed(columns, copy, threads);
  std::vector<std::vector<std::byte>> expansions(columns.size());  // FP8 has a scale for each tile
  std::vector<WeightView> plain;
  for (size_t i = 0; i < columns.size(); ++i) plain.push_back(expanded(columns[i], DType::F32, expansions[i], threads));
  return transposed(plain, copy, threads);
}

void write(const WeightSource& source, const Output& out, const AdapterFusion& fusion, TensorEncoder& encoder,
           ThreadPool& threads, GgufWriter& writer) {
  const FileTensor& from = out.from;
  for (const WeightView& view : from.sources) source.fetch(view, threads);
  std::vector<std::byte> copy;
  for (const FileTensor::Part& part : from.parts) {
    if (fusion.changes(from.declared)) {
      const WeightView whole = fusion.fused(from.declared, from.sources, from.transposed, copy, threads);
      const auto rows = from.paired > 0 ? in_pairs(whole, /*bias=*/false, from.paired) : std::vector{whole};
      encoder.write(rows, out.tensor, writer, part.change);
    } else if (from.transposed) {
      const WeightView rows = rows_of(part.pieces, copy, threads);
      encoder.write({&rows, 1}, out.tensor, writer, part.change);
    } else {
      encoder.write(part.pieces, out.tensor, writer, part.change);
    }
  }
  for (const WeightView& view : from.sources) source.release(view);
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
    for (const WeightView& view : out.from.sources) summary.bytes_in += static_cast<int64_t>(view.bytes());
    summary.bytes_out += static_cast<int64_t>(row_bytes(out.tensor.dtype, elements));
    summary.tensors += 1;
    progress(done += elements, total);
  }
  writer.finish();
  return summary;
}

}  // namespace millrace
