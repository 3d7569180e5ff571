#include "formats/synthetic_shapes.h"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

// clang-format off
constexpr std::array kShapes{
    // name, architecture, vocab, hidden, layers, heads, kv heads, head dim, feed forward, context, rope base, tied
    SyntheticShape{"tiny", "llama", 512, 256, 2, 4, 2, 64, 512, 2048, 1e4f, true},  // for tests of whole programs
    SyntheticShape{"llama-2-7b", "llama", 32000, 4096, 32, 32, 32, 128, 11008, 4096, 1e4f, false},
    SyntheticShape{"llama-2-13b", "llama", 32000, 5120, 40, 40, 40, 128, 13824, 4096, 1e4f, false},
    SyntheticShape{"llama-2-70b", "llama", 32000, 8192, 80, 64, 8, 128, 28672, 4096, 1e4f, false},
    SyntheticShape{"llama-3-8b", "llama", 128256, 4096, 32, 32, 8, 128, 14336, 8192, 5e5f, false},
    SyntheticShape{"llama-3-70b", "llama", 128256, 8192, 80, 64, 8, 128, 28672, 8192, 5e5f, false},
    SyntheticShape{"llama-3.1-8b", "llama", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 5e5f, false, 8},
    SyntheticShape{"llama-3.2-1b", "llama", 128256, 2048, 16, 32, 8, 64, 8192, 131072, 5e5f, true, 32},
    SyntheticShape{"llama-3.2-3b", "llama", 128256, 3072, 28, 24, 8, 128, 8192, 131072, 5e5f, true, 32},
    SyntheticShape{"tinyllama-1.1b", "llama", 32000, 2048, 22, 32, 4, 64, 5632, 2048, 1e4f, false},
    SyntheticShape{"smollm2-135m", "llama", 49152, 576, 30, 9, 3, 64, 1536, 8192, 1e5f, true},
    SyntheticShape{"smollm2-360m", "llama", 49152, 960, 32, 15, 5, 64, 2560, 8192, 1e5f, true},
    SyntheticShape{"smollm2-1.7b", "llama", 49152, 2048, 24, 32, 32, 64, 8192, 8192, 1.3e5f, true},
    SyntheticShape{"mistral-7b", "llama", 32768, 4096, 32, 32, 8, 128, 14336, 32768, 1e6f, false},
    SyntheticShape{"qwen2.5-0.5b", "qwen2", 151936, 896, 24, 14, 2, 64, 4864, 32768, 1e6f, true},
    SyntheticShape{"qwen2.5-1.5b", "qwen2", 151936, 1536, 28, 12, 2, 128, 8960, 32768, 1e6f, true},
    SyntheticShape{"qwen2.5-3b", "qwen2", 151936, 2048, 36, 16, 2, 128, 11008, 32768, 1e6f, true},
    SyntheticShape{"qwen2.5-7b", "qwen2", 152064, 3584, 28, 28, 4, 128, 18944, 32768, 1e6f, false},
    SyntheticShape{"qwen3-0.6b", "qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 40960, 1e6f, true},
    SyntheticShape{"qwen3-1.7b", "qwen3", 151936, 2048, 28, 16, 8, 128, 6144, 40960, 1e6f, true},
    SyntheticShape{"qwen3-4b", "qwen3", 151936, 2560, 36, 32, 8, 128, 9728, 40960, 1e6f, true},
    SyntheticShape{"qwen3-8b", "qwen3", 151936, 4096, 36, 32, 8, 128, 12288, 40960, 1e6f, false},
    SyntheticShape{"gemma2-2b", "gemma2", 256000, 2304, 26, 8, 4, 256, 9216, 8192, 1e4f, true, 0, 4096},
    SyntheticShape{"gemma2-9b", "gemma2", 256000, 3584, 42, 16, 8, 256, 14336, 8192, 1e4f, true, 0, 4096},
    SyntheticShape{"gemma3-1b", "gemma3", 262144, 1152, 26, 4, 1, 256, 6912, 32768, 1e6f, true, 0, 512},
    SyntheticShape{"gemma4-31b", "gemma4", 262144, 5376, 60, 32, 16, 256, 21504, 262144, 1e6f, true, 0, 1024, 512, 4},
    SyntheticShape{"granite-3.3-2b", "granite", 49159, 2048, 40, 32, 8, 64, 8192, 131072, 1e7f, true},
    SyntheticShape{"granite-3.3-8b", "granite", 49159, 4096, 40, 32, 8, 128, 12800, 131072, 1e7f, true},
    SyntheticShape{"phi3-mini", "phi3", 32064, 3072, 32, 32, 32, 96, 8192, 4096, 1e4f, false, 0, 2047},
    SyntheticShape{"chatglm2-6b", "chatglm", 65024, 4096, 28, 32, 2, 128, 13696, 32768, 1e4f, false},
    SyntheticShape{"glm-4-9b", "chatglm", 151552, 4096, 40, 32, 2, 128, 13696, 131072, 5e6f, false},
    // the same; rope factor, window, global head dim and KV heads, experts, used, width, shared width, dense layers
    SyntheticShape{"mixtral-8x7b", "llama", 32000, 4096, 32, 32, 8, 128, 14336, 32768, 1e6f, false, 0, 0, 0, 0, 8, 2, 14336},
    SyntheticShape{"olmoe-7b", "olmoe", 50304, 2048, 16, 16, 16, 128, 1024, 4096, 1e4f, false, 0, 0, 0, 0, 64, 8, 1024},
    SyntheticShape{"qwen3-30b-a3b", "qwen3moe", 151936, 2048, 48, 32, 4, 128, 6144, 40960, 1e6f, false, 0, 0, 0, 0, 128, 8, 768},
    SyntheticShape{"qwen3-235b-a22b", "qwen3moe", 151936, 4096, 94, 64, 4, 128, 12288, 40960, 1e6f, false, 0, 0, 0, 0, 128, 8, 1536},
    SyntheticShape{"glm-4.5-air", "glm4moe", 151552, 4096, 46, 96, 8, 128, 10944, 131072, 1e6f, false, 0, 0, 0, 0, 128, 8, 1408, 1408, 1},
    SyntheticShape{"granite-3.1-3b-a800m", "granitemoe", 49155, 1536, 32, 24, 8, 64, 512, 131072, 5e6f, true, 0, 0, 0, 0, 40, 8, 512},
    SyntheticShape{"gpt-oss-20b", "gpt-oss", 201088, 2880, 24, 64, 8, 64, 2880, 131072, 1.5e5f, false, 32, 128, 0, 0, 32, 4, 2880},
    SyntheticShape{"gpt-oss-120b", "gpt-oss", 201088, 2880, 36, 64, 8, 64, 2880, 131072, 1.5e5f, false, 32, 128, 0, 0, 128, 4, 2880},
    SyntheticShape{"gemma4-26b-a4b", "gemma4", 262144, 2816, 30, 16, 8, 256, 2112, 262144, 1e6f, true, 0, 1024, 512, 2, 128, 8, 704},
    SyntheticShape{"tiny-experts", "qwen3moe", 512, 256, 2, 4, 2, 64, 256, 2048, 1e4f, true, 0, 0, 0, 0, 8, 2, 256},
    // the same; latent, latent of queries, rotary part, value
    SyntheticShape{"deepseek-v2-lite", "deepseek2", 102400, 2048, 27, 16, 1, 192, 10944, 163840, 1e4f, false, 0, 0, 0, 0, 64, 6, 1408, 2816, 1, 512, 0, 64, 128},
    SyntheticShape{"deepseek-v3", "deepseek2", 129280, 7168, 61, 128, 1, 192, 18432, 163840, 1e4f, false, 0, 0, 0, 0, 256, 8, 2048, 2048, 3, 512, 1536, 64, 128},
    // the same; key and value heads of gated delta nets
    SyntheticShape{"qwen3-next-80b-a3b", "qwen3next", 151936, 2048, 48, 16, 2, 256, 5120, 262144, 1e7f, false, 0, 0, 0, 0, 512, 10, 512, 512, 0, 0, 0, 0, 0, 16, 32},
    SyntheticShape{"qwen3.5-35b-a3b", "qwen35moe", 248320, 2048, 40, 16, 2, 256, 512, 262144, 1e7f, false, 0, 0, 0, 0, 256, 8, 512, 512, 0, 0, 0, 0, 0, 16, 32},
    SyntheticShape{"qwen3.5-27b", "qwen35", 248320, 5120, 64, 24, 4, 256, 17408, 262144, 1e7f, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 48},
    SyntheticShape{"qwen3.5-2b", "qwen35", 248320, 2048, 24, 8, 2, 256, 6144, 262144, 1e7f, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 16},
    SyntheticShape{"qwen3-next-2b", "qwen3next", 151936, 1024, 24, 8, 2, 256, 1024, 262144, 1e7f, true, 0, 0, 0, 0, 64, 8, 256, 256, 0, 0, 0, 0, 0, 8, 16},  // for comparisons on small machines
    // the same; kinds of layers, heads of a mixer, head dim, groups, state, taps of the convolution
    SyntheticShape{"mamba2-2.7b", "mamba2", 50288, 2560, 64, 0, 0, 0, 0, 1048576, 0, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM", 80, 64, 1, 128, 4},
    SyntheticShape{"mamba2-1.3b", "mamba2", 50288, 2048, 48, 0, 0, 0, 0, 1048576, 0, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM", 64, 64, 1, 128, 4},
    SyntheticShape{"granite-4-h-1b", "granitehybrid", 100352, 1536, 40, 12, 4, 128, 4096, 131072, 1e4f, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM", 48, 64, 1, 128, 4},
    SyntheticShape{"granite-4-tiny", "granitehybrid", 100352, 1536, 40, 12, 4, 128, 512, 131072, 1e4f, true, 0, 0, 0, 0, 64, 6, 512, 1024, 0, 0, 0, 0, 0, 0, 0,
        "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM", 48, 64, 1, 128, 4},
    SyntheticShape{"nemotron-nano-9b-v2", "nemotron_h", 131072, 4480, 56, 40, 8, 128, 15680, 131072, 1e4f, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 128, 80, 8, 128, 4},
    SyntheticShape{"lfm2-1.2b", "lfm2", 65536, 2048, 16, 32, 8, 64, 8192, 128000, 1e6f, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        "CC*CC*CC*C*C*C*C", 0, 0, 0, 0, 3},
    SyntheticShape{"opt-125m", "opt", 50272, 768, 12, 12, 12, 64, 3072, 2048, 0, true},
    SyntheticShape{"opt-1.3b", "opt", 50272, 2048, 24, 32, 32, 64, 8192, 2048, 0, true},
    SyntheticShape{"opt-6.7b", "opt", 50272, 4096, 32, 32, 32, 128, 16384, 2048, 0, true},
    SyntheticShape{"opt-13b", "opt", 50272, 5120, 40, 40, 40, 128, 20480, 2048, 0, true},
};
// clang-format on

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() { return kShapes; }

const SyntheticShape* find_synthetic_shape(std::string_view name) {
  const auto found =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const SyntheticShape& s) { return s.name == name; });
  return found == kShapes.end() ? nullptr : found;
}

}  // namespace millrace
