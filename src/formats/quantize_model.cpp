#include "formats/quantize_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "tensor/quantize.h"

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

// Converts tensors piece by piece: a few MB of memory for a model of any size.
class Converter {
 public:
  Converter(const WeightSource& source, ThreadPool& threads) : source_(source), threads_(threads) {}

  void convert(const WeightView& in, const GgufTensor& out, GgufWriter& writer) {
    if (in.dtype == out.dtype || in.rows == 0) return writer.write({in.data, in.bytes()});
    constexpr int64_t kElementsAtOnce = 1 << 20;
    const int64_t rows_at_once = std::clamp<int64_t>(kElementsAtOnce / in.cols, 1, in.rows);
    for (int64_t first = 0; first < in.rows; first += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, in.rows - first);
      convert_rows(in, first, rows, out);
      writer.write(encoded_);
    }
  }

 private:
  void convert_rows(const WeightView& in, int64_t first, int64_t rows, const GgufTensor& out) {
    const size_t bytes = row_bytes(out.dtype, in.cols);
    encoded_.resize(static_cast<size_t>(rows) * bytes);
    numbers_.resize(static_cast<size_t>(rows * in.cols));
    std::atomic<bool> finite = true, fits = true;
    threads_.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* row = numbers_.data() + i * in.cols;
        std::byte* encoded = encoded_.data() + static_cast<size_t>(i) * bytes;
        dequantize_row(in.dtype, in.row(first + i), row, in.cols);
        if (!all_below(std::numeric_limits<float>::infinity(), row, in.cols)) finite = false;
        const bool is_usual = all_below(kLargestF16, row, in.cols);
        quantize_row(out.dtype, row, encoded, in.cols);
        if (is_usual) continue;
        dequantize_row(out.dtype, encoded, row,
                       in.cols);  // detects overflow: values or scales stored as f16 may have become infinite
        if (!all_below(std::numeric_limits<float>::infinity(), row, in.cols)) fits = false;
      }
    });
    if (!finite)
      fail(ErrorKind::BadFile, "{}: tensor '{}' holds numbers that are not finite", source_.origin(), out.name);
    if (!fits)
      fail(ErrorKind::Unsupported, "{}: tensor '{}' holds numbers that are too large for {}", source_.origin(),
           out.name, name(out.dtype));
  }

  static bool all_below(float limit, const float* row, int64_t count) {
    return std::all_of(row, row + count, [limit](float v) { return std::abs(v) < limit; });
  }

  const WeightSource& source_;
  ThreadPool& threads_;
  std::vector<float> numbers_;
  std::vector<std::byte> encoded_;
};

}  // namespace

QuantizeSummary quantize_model(const WeightSource& source, const std::filesystem::path& out,
                               const QuantizeRecipe& recipe, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress) {
  // A rename puts the result in place. It would replace a device or a link instead of writing to it, so refuse those.
  const auto status = std::filesystem::symlink_status(out);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorKind::Usage, "{}: is there already and is not a regular file", out.string());
  }
  if (source.gguf() == nullptr) {
    fail(ErrorKind::Unsupported, "{}: only GGUF models can be quantized; convert the folder to GGUF first",
         source.origin());
  }
  for (const MappedFile& file : source.files()) {  // a split model has several
    std::error_code error;
    if (std::filesystem::equivalent(file.path(), out, error))
      fail(ErrorKind::Usage, "{}: the output would overwrite the input", out.string());
  }
  const auto tensors = plan(source, recipe);
  GgufWriter writer(out, carry_over(*source.gguf(), recipe), tensors);
  Converter converter(source, threads);
  QuantizeSummary summary;
  int64_t done = 0, total = 0;
  for (const GgufTensor& tensor : tensors) total += *element_count(tensor.shape);
  for (const GgufTensor& tensor : tensors) {
    const WeightView view = source.tensor(tensor.name, tensor.shape);
    converter.convert(view, tensor, writer);
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
