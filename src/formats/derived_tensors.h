// Tensors that a source computes from others of its files, because the files store them in an order that no kernel
// reads. A derived tensor has an address from the start, but takes memory only between fetch() and release().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/tensor_info.h"
#include "tensor/matrix.h"

namespace millrace {

struct DerivedTensor {
  TensorInfo info;                 // data: null
  std::vector<std::string> parts;  // tensors of the files that it replaces
  // Writes rows [begin, end) from `out` on; outer dimensions are folded into rows. Called from several threads.
  std::function<void(int64_t begin, int64_t end, std::byte* out)> write;
};

class DerivedTensors {
 public:
  void add(DerivedTensor tensor);
  const std::byte* address(const std::string& name) const;  // null: no derived tensor
  // A view may be some rows of a tensor. Views of other memory are ignored.
  bool contains(const WeightView& view) const { return find(view) != nullptr; }
  void fetch(const WeightView& view, ThreadPool& pool) const;
  void release(const WeightView& view) const;

 private:
  struct Place;
  const Place* find(const WeightView& view) const;
  std::map<std::string, std::shared_ptr<Place>> by_name_;
  std::map<const std::byte*, std::shared_ptr<Place>> by_address_;
};

}  // namespace millrace
