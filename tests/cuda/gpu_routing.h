// A routing in GPU memory, and its copy on the host.
#pragma once

#include "cuda/support.h"
#include "kernels/grouped_linear/routing.h"

namespace millrace {

class GpuRouting {
 public:
  explicit GpuRouting(const Routing& host)
      : host_(host),
        chosen_(host.chosen, static_cast<size_t>(host.pairs()) * 4),
        weights_(host.weights, static_cast<size_t>(host.pairs()) * 4),
        order_(host.order, static_cast<size_t>(host.pairs()) * 4),
        offsets_(host.offsets, static_cast<size_t>(host.groups + 1) * 4) {}

  Routing view() const {
    return {host_.rows,           host_.per_row,        host_.groups,          chosen_.as<int32_t>(),
            weights_.as<float>(), order_.as<int32_t>(), offsets_.as<int32_t>()};
  }
  void write(const Routing& from) const {
    const auto copy = [](const GpuBytes& to, const void* data, size_t bytes) {
      gpu().memory().write(to.data(), static_cast<const std::byte*>(data), bytes);
    };
    copy(chosen_, from.chosen, static_cast<size_t>(from.pairs()) * 4);
    copy(weights_, from.weights, static_cast<size_t>(from.pairs()) * 4);
    copy(order_, from.order, static_cast<size_t>(from.pairs()) * 4);
    copy(offsets_, from.offsets, static_cast<size_t>(from.groups + 1) * 4);
  }
  void read(const Routing& to) const {
    const auto copy = [](const GpuBytes& from, void* data) {
      const auto bytes = from.read();
      std::memcpy(data, bytes.data(), bytes.size());
    };
    copy(chosen_, to.chosen);
    copy(weights_, to.weights);
    copy(order_, to.order);
    copy(offsets_, to.offsets);
  }

 private:
  Routing host_;
  GpuBytes chosen_, weights_, order_, offsets_;
};

}  // namespace millrace
