// Packs declared matrices into their layouts, or uploads them to a device.
#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "dataflow/layout.h"
#include "models/stored_rows.h"
#include "models/weights.h"

namespace millrace {

// The sources as matrices [n, k]; transposed ones are copied.
std::vector<WeightView> Weights::in_rows(const Pending& pending, std::vector<std::byte>& copy) const {
  if (!pending.transposed) return pending.sources;
  return {transposed(pending.sources, copy, ops_.pool())};
}

namespace {

// Pinned. A system that limits pinned memory gets plain memory, from which copies are slower.
std::unique_ptr<Arena> arena_of_streamed(size_t bytes, Device& device) {
  const char* purpose = "weights in the GPU's layout";
  try {
    return std::make_unique<Arena>(purpose, bytes, device.staging());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    log().warn("{}; prompts copy weights from memory that is not pinned, which is slower", error.what());
    return std::make_unique<Arena>(purpose, bytes);
  }
}

}  // namespace

void Weights::pack(const std::function<void(int64_t, int64_t)>& progress) {
  arena_ = std::make_unique<Arena>("weights", packed_bytes(false) - vector_bytes(false), ops_.device().memory());
  host_arena_ = std::make_unique<Arena>("weights in host memory", packed_bytes(true) - vector_bytes(true));
  if (streamed_bytes() > 0) streamed_arena_ = arena_of_streamed(streamed_bytes(), ops_.device());
  pack_vectors();
  if (on_device()) {
    upload(progress);
  } else {
    pack_matrices(false, progress);
  }
  pack_matrices(true, progress);
  pack_groups(progress);
  pack_streamed();
  pending_.clear();
  for (const Linear& linear : linears_) {
    if (linear.apart == nullptr) continue;
    for (size_t i = 0; i < linear.parts.size(); ++i)
      const_cast<Linear*>(linear.apart)->parts[i].weights = linear.parts[i].weights;
  }
  // Last: a tied output matrix releases the embedding table after packing.
  const auto turn = ops_.pool().turn();
  for (const InPlace& part : in_place_) source_.fetch(part.view, ops_.pool());
  if (on_device()) return;
  for (const auto& table : tables_) source_.fetch(table, ops_.pool());
}

// Packs the linear layers that the CPU computes.
void Weights::pack_matrices(bool on_host, const std::function<void(int64_t, int64_t)>& progress) {
  Arena& arena = this->arena(on_host);
  // While a matrix is packed, its pages of the file are resident too. Packing the largest first keeps the peak low.
  const auto size = [](const Pending& pending) { return pending.weights().n * pending.weights().k; };
  std::stable_sort(pending_.begin(), pending_.end(),
                   [&](const Pending& a, const Pending& b) { return size(a) > size(b); });
  for (const auto& pending : pending_) {
    if (pending.linear->on_host != on_host || pending.streamed) continue;
    const auto turn = ops_.pool().turn();  // matrix by matrix: engines that share the pool step in between
    LinearWeights& w = pending.weights();
    std::byte* data = arena.take(pending.bytes());
    std::vector<std::byte> copy;
    for (const auto& view : pending.sources) source_.fetch(view, ops_.pool());
    const std::vector<WeightView> sources = in_rows(pending, copy);
    if (w.layout->in_place(w.format, w.n, w.k)) {
      std::byte* to = data;
      for (const auto& view : sources) to = std::copy_n(view.data, view.bytes(), to);
    } else {
      w.layout->pack(sources, data, ops_.pool());
    }
    w.data = data;
    for (const auto& view : pending.sources) source_.release(view);
    report(progress);
  }
}

// The device packs, in memory that its stages take later.
void Weights::pack_streamed() {
  size_t largest = 0;
  for (const auto& pending : pending_) largest = std::max(largest, pending.streamed ? pending.bytes() : 0);
  if (largest == 0) return;
  const auto uploader = on_device() ? ops_.device().new_uploader() : nullptr;
  Arena packs("packing weights in host memory", uploader != nullptr ? largest : 0, ops_.device().memory());
  std::byte* scratch = packs.take(packs.capacity());
  for (const auto& pending : pending_) {
    if (!pending.streamed) continue;
    const auto turn = ops_.pool().turn();
    LinearWeights& w = pending.weights();
    std::byte* to = streamed_arena_->take(pending.bytes());
    std::vector<std::byte> copy;
    for (const auto& view : pending.sources) source_.fetch(view, ops_.pool());
    const std::vector<WeightView> sources = in_rows(pending, copy);
    if (uploader != nullptr) {
      if (pending.linear->gated) {
        w.layout->upload_gated(sources[0], sources[1], scratch, *uploader, ops_.pool());
      } else {
        w.layout->upload(sources, scratch, *uploader, ops_.pool());
      }
      ops_.device().finish();
      ops_.device().memory().read(to, scratch, pending.bytes());
    } else if (w.layout->in_place(w.format, w.n, w.k)) {
      for (std::byte* at = to; const auto& view : sources) at = std::copy_n(view.data, view.bytes(), at);
    } else {
      w.layout->pack(sources, to, ops_.pool());
    }
    w.data = to;
    for (const auto& view : pending.sources) source_.release(view);
  }
}

void Weights::report(const std::function<void(int64_t, int64_t)>& progress) const {
  progress(static_cast<int64_t>(arena_->used() + host_arena_->used()),
           static_cast<int64_t>(arena_->capacity() + host_arena_->capacity()));
}

void Weights::upload(const std::function<void(int64_t, int64_t)>& progress) {
  const auto uploader = ops_.device().new_uploader();
  std::vector<const WeightView*> tied;  // by pending part; looked up while the tables still point into the file
  for (const auto& pending : pending_) tied.push_back(table_like(pending));
  for (auto& table : tables_) {
    const auto turn = ops_.pool().turn();
    const WeightView source = table;
    std::byte* data = arena_->take(table.bytes());
    source_.fetch(source, ops_.pool());
    upload_bytes(source.data, data, source.bytes(), *uploader, ops_.pool());
    table.data = data;
    source_.release(source);
  }
  for (size_t i = 0; i < pending_.size(); ++i) {
    const auto& pending = pending_[i];
    if (pending.linear->on_host || pending.streamed) continue;
    const auto turn = ops_.pool().turn();
    LinearWeights& w = pending.weights();
    if (tied[i] != nullptr) {
      w.data = tied[i]->data;
      continue;
    }
    std::byte* data = arena_->take(pending.bytes());
    std::vector<std::byte> copy;
    for (const auto& view : pending.sources) source_.fetch(view, ops_.pool());
    const std::vector<WeightView> sources = in_rows(pending, copy);
    if (pending.linear->gated) {
      w.layout->upload_gated(sources[0], sources[1], data, *uploader, ops_.pool());
    } else {
      w.layout->upload(sources, data, *uploader, ops_.pool());
    }
    w.data = data;
    for (const auto& view : pending.sources) source_.release(view);
    report(progress);
  }
  ops_.device().finish();
}

}  // namespace millrace
