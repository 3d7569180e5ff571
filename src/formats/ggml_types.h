// Every number format that a GGUF file may name, including those that cannot run: they are listed, and refused by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

struct GgmlType {
  uint32_t id;
  std::string_view name;
  int block;  // elements per block
  int bytes;  // bytes per block
};

const GgmlType* find_ggml_type(uint32_t id);  // null: unknown

}  // namespace millrace
