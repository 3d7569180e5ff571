#include "engine/step_results.h"

#include "tensor/half.h"

namespace millrace {
namespace {

size_t token_bytes(int64_t rows) { return static_cast<size_t>(rows) * sizeof(int32_t); }
int64_t padded(int64_t vocab) { return (vocab + 7) / 8 * 8; }  // same padding as in Activations
size_t logit_bytes(int64_t rows, int64_t vocab) { return static_cast<size_t>(rows) * row_bytes(DType::F32, vocab); }

size_t host_bytes(int64_t tokens, int64_t rows, int64_t vocab, int64_t hidden) {
  return Device::kStepsAtOnce * Arena::padded(token_bytes(tokens)) + Arena::padded(logit_bytes(rows, padded(vocab))) +
         Arena::padded(logit_bytes(rows, padded(hidden)));
}

}  // namespace

StepResults::StepResults(Device& device, bool chooses, int64_t rows, int32_t alternatives, int64_t vocab,
                         int64_t hidden)
    : device_(device),
      chooses_(chooses),
      host_("results", chooses ? host_bytes((1 + alternatives) * rows, rows, vocab, hidden) : 0, device.staging()),
      placed_("chosen tokens", chooses ? Arena::padded(token_bytes((1 + alternatives) * rows)) : 0, device.memory()) {
  if (!chooses) return;
  const size_t bytes = token_bytes((1 + alternatives) * rows);
  for (int32_t*& tokens : tokens_) tokens = reinterpret_cast<int32_t*>(host_.take(bytes));
  chosen_ = reinterpret_cast<int32_t*>(placed_.take(bytes));
  host_logits_ = host_.matrix(DType::F32, rows, padded(vocab));
  host_logits_.cols = vocab;
  host_hidden_ = host_.matrix(DType::F32, rows, padded(hidden));
  host_hidden_.cols = hidden;
}

void StepResults::take(Matrix logits, const DrawTables& draws, int32_t alternatives, int slot, Ops& ops) {
  computed_ = logits;
  rows_ = logits.rows;
  if (!chooses_ || rows_ == 0) return;
  if (draws.any()) {
    ops.sample(draws.args(logits, tokens_[slot], chosen_));
    return;
  }
  for (int32_t rank = 0; rank <= alternatives; ++rank)
    ops.argmax({logits, tokens_[slot] + rank * rows_, chosen_ + rank * rows_, chosen_, rank});
}

std::span<const int32_t> StepResults::tokens(int slot, int64_t count) const {
  return {tokens_[slot], chooses_ ? static_cast<size_t>(count) : 0};
}

Matrix StepResults::logits() {
  const Matrix computed = computed_.first_rows(rows_);
  if (device_.is_host() || rows_ == 0) return computed;
  const Matrix host = host_logits_.first_rows(rows_);
  device_.enqueue_read(host.data, computed.data, logit_bytes(rows_, computed.stride));
  device_.finish();
  return host;
}

Matrix StepResults::logits(std::span<const uint8_t> wanted) {
  const Matrix computed = computed_.first_rows(rows_);
  if (device_.is_host() || rows_ == 0) return computed;
  const auto rows = static_cast<int64_t>(wanted.size());
  for (int64_t begin = 0, end; begin < rows; begin = end) {
    for (end = begin + 1; end < rows && (wanted[end] != 0) == (wanted[begin] != 0);) ++end;
    if (wanted[begin] == 0) continue;
    device_.enqueue_read(host_logits_.rows_from(begin, 1).data, computed.rows_from(begin, 1).data,
                         logit_bytes(end - begin, computed.stride));
  }
  device_.finish();
  return host_logits_.first_rows(rows_);
}

Matrix StepResults::hidden(Matrix states, int64_t first, int64_t count) {
  const size_t bytes = row_bytes(states.dtype, states.stride);
  states.data += static_cast<size_t>(first) * bytes;
  states.rows = count;
  if (device_.is_host() || count == 0) return states;
  // Reads the rows to the end of the f32 buffer, so that widening from front to back overwrites no unread value.
  const size_t wide = logit_bytes(count, states.stride), narrow = static_cast<size_t>(count) * bytes;
  std::byte* raw = host_hidden_.data + (wide - narrow);
  device_.enqueue_read(raw, states.data, narrow);
  device_.finish();
  auto* out = reinterpret_cast<float*>(host_hidden_.data);
  const auto* halves = reinterpret_cast<const uint16_t*>(raw);
  for (int64_t i = 0; i < count * states.stride && states.dtype != DType::F32; ++i)
    out[i] = states.dtype == DType::F16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
  Matrix host = host_hidden_.first_rows(count);
  host.stride = states.stride;
  return host;
}

}  // namespace millrace
