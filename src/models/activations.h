// The buffers that a forward pass flows through. The architecture asks for each by name where it uses it; dry passes
// note the largest request, and that is what is allocated.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tensor/arena.h"

namespace millrace {

class Activations {
 public:
  // [rows, cols] of the named buffer. Requests of one name share its memory. Before allocate() the matrix has an
  // address of its own that nothing may touch; afterwards a request must be within the largest that was noted.
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
