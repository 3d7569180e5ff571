// The activation buffers of a forward pass. The architecture requests each buffer by name where it uses it. Dry passes
// record the largest request of each name; allocate() allocates that size.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tensor/arena.h"

namespace millrace {

class Activations {
 public:
  // [rows, cols] of the named buffer; requests of one name share memory. Before allocate() the matrix has a distinct
  // address that must not be dereferenced. Afterwards a request must not exceed the largest one recorded.
  Matrix request(std::string_view name, DType dtype, int64_t rows, int64_t cols);

  size_t bytes() const;
  void allocate(Memory& memory);

 private:
  struct Buffer {
    std::string_view name;
    size_t bytes = 0;
    std::byte* data = nullptr;
  };
  Buffer& find(std::string_view name);

  std::vector<Buffer> buffers_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace millrace
