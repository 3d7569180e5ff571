#include "engine/step_results.h"

#include "base/error.h"

namespace millrace {
namespace {

size_t token_bytes(int64_t rows) { return static_cast<size_t>(rows) * sizeof(int32_t); }
int64_t padded(int64_t vocab) { return (vocab + 7) / 8 * 8; }  // as Activations pads rows
size_t logit_bytes(int64_t rows, int64_t vocab) { return static_cast<size_t>(rows) * row_bytes(DType::F32, vocab); }

}  // namespace

StepResults::StepResults(Device& device, int64_t rows, int64_t vocab)
    : device_(device),
      host_("results", Arena::padded(token_bytes(rows)) + (device.is_host() ? 0 : logit_bytes(rows, padded(vocab))),
            device.staging()),
      placed_("results", device.is_host() ? 0 : token_bytes(rows), device.memory()) {
  host_tokens_ = reinterpret_cast<int32_t*>(host_.take(token_bytes(rows)));
  placed_tokens_ = host_tokens_;
  if (device.is_host()) return;
  host_logits_ = host_.matrix(DType::F32, rows, padded(vocab));
  host_logits_.cols = vocab;
  placed_tokens_ = reinterpret_cast<int32_t*>(placed_.take(token_bytes(rows)));
}

void StepResults::take(Matrix logits, Ops& ops) {
  computed_ = logits;
  rows_ = logits.rows;
  if (device_.is_host() || rows_ == 0) return;
  ops.argmax(logits, placed_tokens_);
  device_.enqueue_read(reinterpret_cast<std::byte*>(host_tokens_), reinterpret_cast<const std::byte*>(placed_tokens_),
                       token_bytes(rows_));
}

std::span<const int32_t> StepResults::tokens() {
  device_.finish();
  return {host_tokens_, static_cast<size_t>(rows_)};
}

Matrix StepResults::logits() {
  const Matrix computed = computed_.first_rows(rows_);
  if (device_.is_host() || rows_ == 0) return computed;
  const Matrix host = host_logits_.first_rows(rows_);
  device_.enqueue_read(host.data, computed.data, logit_bytes(rows_, computed.stride));
  device_.finish();
  return host;
}

}  // namespace millrace
