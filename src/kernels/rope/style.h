// Which elements of a head turn together.
#pragma once

#include <cstdint>

namespace millrace {

enum class RopeStyle : uint8_t {
  Halves,       // element i turns with i + rotary_dim / 2: Hugging Face's llama
  Interleaved,  // element 2i turns with 2i + 1: GGUF's llama, ChatGLM
};

}  // namespace millrace
