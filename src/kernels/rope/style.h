// How RoPE pairs the elements of a head.
#pragma once

#include <cstdint>

namespace millrace {

enum class RopeStyle : uint8_t {
  Halves,       // rotates element i with i + rotary_dim / 2: Hugging Face's llama
  Interleaved,  // rotates element 2i with 2i + 1: GGUF's llama, ChatGLM
};

}  // namespace millrace
