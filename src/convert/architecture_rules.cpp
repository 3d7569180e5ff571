// The list of architectures that can be converted.
#include <algorithm>
#include <array>

#include "convert/architecture_functions.h"

namespace millrace {
namespace {

constexpr std::array kRules{
    ArchitectureRule{.gguf = "llama", .keys = llama_keys, .rotates_pairs = true},
    ArchitectureRule{.gguf = "qwen2", .keys = without_window_keys},
    ArchitectureRule{.gguf = "qwen3", .keys = without_window_keys, .biases = false},
    ArchitectureRule{.gguf = "gemma", .keys = gemma_keys, .biases = false},
    ArchitectureRule{.gguf = "gemma2", .keys = gemma2_keys, .biases = false},
    ArchitectureRule{.gguf = "gemma3", .keys = gemma3_keys, .biases = false, .theta = 1e6},
    ArchitectureRule{.gguf = "phi3", .keys = phi3_keys},
    ArchitectureRule{.gguf = "chatglm", .keys = chatglm_keys},
    ArchitectureRule{.gguf = "glm4", .keys = chatglm_keys},
    ArchitectureRule{.gguf = "mistral3", .keys = ministral3_keys, .rotates_pairs = true},
    ArchitectureRule{.gguf = "smollm3", .keys = smollm3_keys, .rotates_pairs = true},
    ArchitectureRule{.gguf = "olmo2", .keys = olmo2_keys},
    ArchitectureRule{.gguf = "granite", .keys = granite_keys, .rotates_pairs = true},
    ArchitectureRule{.gguf = "seed_oss", .keys = plain_keys},
    ArchitectureRule{.gguf = "hunyuan-dense", .keys = plain_keys},
    ArchitectureRule{.gguf = "ernie4_5", .keys = plain_keys},
    ArchitectureRule{.gguf = "exaone4", .keys = exaone4_keys, .biases = false},
    ArchitectureRule{.gguf = "command-r", .keys = cohere_keys, .layer_norm = true, .theta = 5e5},
    ArchitectureRule{.gguf = "cohere2", .keys = cohere2_keys, .layer_norm = true, .biases = false},
    ArchitectureRule{.gguf = "starcoder2", .keys = starcoder2_keys, .layer_norm = true},
    ArchitectureRule{.gguf = "gpt2", .keys = gpt2_keys, .layer_norm = true, .rope = false},
    ArchitectureRule{.gguf = "gptneox", .keys = gpt_neox_keys, .layer_norm = true},
    ArchitectureRule{.gguf = "phi2", .keys = phi2_keys, .layer_norm = true},
    ArchitectureRule{.gguf = "stablelm", .keys = stablelm_keys, .layer_norm = true},
    ArchitectureRule{.gguf = "nemotron", .keys = nemotron_keys, .layer_norm = true},
    ArchitectureRule{.gguf = "gpt-oss", .keys = gpt_oss_keys, .theta = 150000},
    ArchitectureRule{.gguf = "qwen2moe", .keys = qwen2_moe_keys},
    ArchitectureRule{.gguf = "qwen3moe", .keys = qwen3_moe_keys, .biases = false},
    ArchitectureRule{.gguf = "olmoe", .keys = olmoe_keys, .biases = false},
    ArchitectureRule{.gguf = "glm4moe", .keys = glm4_moe_keys, .feed_norm_after = true},
    ArchitectureRule{.gguf = "granitemoe", .keys = granitemoe_keys, .rotates_pairs = true},
    ArchitectureRule{.gguf = "ernie4_5-moe", .keys = ernie4_5_moe_keys, .biases = false, .theta = 5e5},
    ArchitectureRule{.gguf = "minimax-m2", .keys = minimax_m2_keys, .theta = 5e6},
    ArchitectureRule{.gguf = "phimoe", .keys = phimoe_keys, .theta = 1e6},
    ArchitectureRule{.gguf = "deepseek2", .keys = deepseek2_keys, .edit = deepseek2_tensor, .sizes = false},
    ArchitectureRule{.gguf = "minicpm3", .keys = minicpm3_keys, .edit = minicpm3_tensor, .sizes = false},
    ArchitectureRule{.gguf = "gemma4", .keys = gemma4_keys, .edit = gemma4_tensor, .sizes = false, .rope = false},
    ArchitectureRule{.gguf = "qwen3next", .keys = qwen3_next_keys, .edit = delta_net_tensor, .biases = false},
    ArchitectureRule{.gguf = "qwen35", .keys = qwen3_5_keys, .edit = delta_net_tensor, .biases = false},
    ArchitectureRule{.gguf = "qwen35moe", .keys = qwen3_5_keys, .edit = delta_net_tensor, .biases = false},
    ArchitectureRule{.gguf = "mamba2", .keys = mamba2_keys, .edit = recurrent_tensor, .sizes = false, .rope = false},
    ArchitectureRule{.gguf = "granitehybrid",
                     .keys = granite_hybrid_keys,
                     .edit = recurrent_tensor,
                     .rotates_pairs = true,
                     .sizes = false,
                     .rope = false},
    ArchitectureRule{
        .gguf = "nemotron_h", .keys = nemotron_h_keys, .edit = recurrent_tensor, .sizes = false, .rope = false},
    ArchitectureRule{
        .gguf = "nemotron_h_moe", .keys = nemotron_h_keys, .edit = recurrent_tensor, .sizes = false, .rope = false},
    ArchitectureRule{.gguf = "lfm2", .keys = lfm2_keys, .edit = recurrent_tensor, .sizes = false, .theta = 1e6},
    ArchitectureRule{.gguf = "lfm2moe", .keys = lfm2_moe_keys, .edit = recurrent_tensor, .sizes = false, .theta = 1e6},
    ArchitectureRule{.gguf = "bert", .keys = bert_keys, .edit = encoder_tensor, .sizes = false, .rope = false},
    ArchitectureRule{.gguf = "nomic-bert",
                     .keys = nomic_bert_keys,
                     .edit = encoder_tensor,
                     .sizes = false,
                     .biases = false,
                     .theta = 1000},
    ArchitectureRule{.gguf = "modern-bert", .keys = modern_bert_keys, .sizes = false, .rope = false},
    ArchitectureRule{.gguf = "gemma-embedding", .keys = gemma_embedding_keys, .biases = false, .theta = 1e6},
    ArchitectureRule{.gguf = "falcon-h1", .keys = falcon_h1_keys, .edit = falcon_h1_tensor},
};

}  // namespace

const ArchitectureRule* find_rule(std::string_view gguf) {
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const auto& rule) { return rule.gguf == gguf; });
  return found == kRules.end() ? nullptr : found;
}

}  // namespace millrace
