#include "formats/quantize_model.h"

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "formats/tensor_encoder.h"

namespace millrace {
namespace {

// Keys that describe the old file, not the model.
bool belongs_to_the_file(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment" ||
         key.starts_with("split.") || key.starts_with("quantize.imatrix.");
}

GgufMetadataBuilder carry_over(const GgufMetadata& metadata, const QuantizeRecipe& recipe) {
  GgufMetadataBuilder builder;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!belongs_to_the_file(entry.key)) builder.copy(entry);
  }
  builder.add_u32("general.file_type", recipe.file_type);
  builder.add_u32("general.quantization_version", 2);
  return builder;
}

std::vector<GgufTensor> plan(const WeightSource& source, const QuantizeRecipe& recipe) {
  const int64_t layers = source.config().optional_integer({.gguf = "block_count"}).value_or(0);
  const bool has_experts = source.config().optional_integer({.gguf = "expert_count"}).value_or(0) > 0;
  std::vector<GgufTensor> planned;
  for (const TensorInfo& tensor : source.tensors()) {
    const auto dtype = dtype_for(recipe, {tensor.name, tensor.shape, layers, source.has("output.weight"), has_experts});
    const WeightView view = source.tensor(tensor.name, tensor.shape);
    planned.push_back({tensor.name, dtype.value_or(view.dtype), tensor.shape});
  }
  return planned;
}

}  // namespace

void refuse_to_replace(const std::filesystem::path& out, const WeightSource& source) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(out, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorKind::Usage, "{}: is there already and is not a regular file", out.string());
  }
  for (const MappedFile& file : source.files()) {  // a split model has several
    if (std::filesystem::equivalent(file.path(), out, error))
      fail(ErrorKind::Usage, "{}: the output would overwrite the input", out.string());
  }
}

QuantizeSummary quantize_model(const WeightSource& source, const std::filesystem::path& out,
                               const QuantizeRecipe& recipe, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress, const Imatrix* imatrix) {
  refuse_to_replace(out, source);
  if (source.gguf() == nullptr) {
    fail(ErrorKind::Unsupported, "{}: only GGUF models can be quantized; convert the folder to GGUF first",
         source.origin());
  }
  const auto tensors = plan(source, recipe);
  GgufMetadataBuilder metadata = carry_over(*source.gguf(), recipe);
  if (imatrix != nullptr) {
    imatrix->check_belongs_to(source.tensors());
    for (const GgufTensor& tensor : tensors) imatrix->of(tensor);  // before any file is written
    imatrix->describe(metadata);
  }
  GgufWriter writer(out, metadata, tensors);
  TensorEncoder encoder(source.origin(), threads);
  QuantizeSummary summary;
  int64_t done = 0, total = 0;
  for (const GgufTensor& tensor : tensors) total += *element_count(tensor.shape);
  for (const GgufTensor& tensor : tensors) {
    const WeightView view = source.tensor(tensor.name, tensor.shape);
    encoder.write({&view, 1}, tensor, writer, {}, imatrix != nullptr ? imatrix->of(tensor) : std::span<const float>());
    source.release(view);
    summary.tensors += 1;
    summary.bytes_in += static_cast<int64_t>(view.bytes());
    summary.bytes_out += static_cast<int64_t>(view.rows) * static_cast<int64_t>(row_bytes(tensor.dtype, view.cols));
    progress(done += view.rows * view.cols, total);
  }
  writer.finish();
  return summary;
}

}  // namespace millrace
