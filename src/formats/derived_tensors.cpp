#include "formats/derived_tensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace millrace {

// Reserved addresses without memory behind them.
struct DerivedTensors::Place {
  explicit Place(DerivedTensor tensor)
      : tensor(std::move(tensor)), bytes(std::max<size_t>(this->tensor.info.bytes, 1)) {
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      fail(ErrorKind::OutOfMemory, "cannot reserve {:.1f} MB for tensor '{}'", double(bytes) / 1e6,
           this->tensor.info.name);
    }
    data = static_cast<std::byte*>(mapped);
  }
  ~Place() { ::munmap(data, bytes); }
  Place(const Place&) = delete;

  DerivedTensor tensor;
  size_t bytes;
  std::byte* data = nullptr;
};

void DerivedTensors::add(DerivedTensor tensor) {
  const std::string name = tensor.info.name;
  auto place = std::make_shared<Place>(std::move(tensor));
  by_address_.emplace(place->data, place);
  by_name_.emplace(name, std::move(place));
}

const std::byte* DerivedTensors::address(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second->data;
}

const DerivedTensors::Place* DerivedTensors::find(const WeightView& view) const {
  auto after = by_address_.upper_bound(view.data);
  if (view.data == nullptr || after == by_address_.begin()) return nullptr;
  const Place& place = *(--after)->second;
  return view.data < place.data + place.bytes ? &place : nullptr;
}

void DerivedTensors::fetch(const WeightView& view, ThreadPool& pool) const {
  constexpr int64_t kRowsAtOnce = 64;
  const Place* place = find(view);
  if (place == nullptr || view.rows == 0) return;
  const size_t each = row_bytes(view.dtype, view.cols), offset = static_cast<size_t>(view.data - place->data);
  const auto first = static_cast<int64_t>(offset / each);
  pool.parallel_for(view.rows, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    place->tensor.write(first + begin, first + end, place->data + offset + static_cast<size_t>(begin) * each);
  });
}

void DerivedTensors::release(const WeightView& view) const {
  const Place* place = find(view);
  if (place == nullptr) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(view.data - place->data);
  const size_t begin = (offset + page - 1) / page * page, end = (offset + view.bytes()) / page * page;
  if (begin < end) ::madvise(place->data + begin, end - begin, MADV_DONTNEED);
}

}  // namespace millrace
