#include "models/registry.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace millrace {
namespace {

// A new architecture is one file and one entry here. A config without "architectures" is found by its model_type, which
// is listed if it differs from the name.
const std::array kArchitectures{
    Architecture{"llama", {"llama"}, {"LlamaForCausalLM", "MistralForCausalLM", "mistral"}, make_llama},
    Architecture{"qwen2", {"qwen2"}, {"Qwen2ForCausalLM"}, make_qwen2},
    Architecture{"qwen3", {"qwen3"}, {"Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3Model"}, make_qwen3},
    Architecture{"gemma2", {"gemma2"}, {"Gemma2ForCausalLM"}, make_gemma2},
    Architecture{"gemma3",
                 {"gemma3", "gemma-embedding"},
                 {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Gemma3TextModel", "gemma3_text"},
                 make_gemma3},
    Architecture{"phi3", {"phi3"}, {"Phi3ForCausalLM"}, make_phi3},
    Architecture{"opt", {}, {"OPTForCausalLM"}, make_opt},
    Architecture{
        "chatglm",
        {"chatglm", "glm4"},
        {"ChatGLMModel", "ChatGLMForConditionalGeneration", "GlmForCausalLM", "Glm4ForCausalLM", "glm", "glm4"},
        make_chatglm},
    Architecture{"ministral3",
                 {"mistral3"},
                 {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration", "mistral3"},
                 make_ministral3},
    Architecture{"smollm3", {"smollm3"}, {"SmolLM3ForCausalLM"}, make_smollm3},
    Architecture{"olmo2", {"olmo2"}, {"Olmo2ForCausalLM", "Olmo3ForCausalLM", "olmo3"}, make_olmo2},
    Architecture{"granite", {"granite"}, {"GraniteForCausalLM"}, make_granite},
    Architecture{"seed_oss", {"seed_oss"}, {"SeedOssForCausalLM"}, make_seed_oss},
    Architecture{"hunyuan", {"hunyuan-dense"}, {"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense"}, make_hunyuan},
    Architecture{"ernie4_5", {"ernie4_5"}, {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}, make_ernie4_5},
    Architecture{"exaone4", {"exaone4"}, {"Exaone4ForCausalLM"}, make_exaone4},
    Architecture{"gemma", {"gemma"}, {"GemmaForCausalLM"}, make_gemma},
    Architecture{
        "gemma4", {"gemma4"}, {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "gemma4_text"}, make_gemma4},
    Architecture{
        "cohere", {"command-r", "cohere2"}, {"CohereForCausalLM", "Cohere2ForCausalLM", "cohere2"}, make_cohere},
    Architecture{"starcoder2", {"starcoder2"}, {"Starcoder2ForCausalLM"}, make_starcoder2},
    Architecture{"gpt2", {"gpt2"}, {"GPT2LMHeadModel"}, make_gpt2},
    Architecture{"gpt_neox", {"gptneox"}, {"GPTNeoXForCausalLM"}, make_gpt_neox},
    Architecture{"phi", {"phi2"}, {"PhiForCausalLM"}, make_phi},
    Architecture{"stablelm", {"stablelm"}, {"StableLmForCausalLM"}, make_stablelm},
    Architecture{"nemotron", {"nemotron"}, {"NemotronForCausalLM"}, make_nemotron},
    Architecture{"gpt_oss", {"gpt-oss"}, {"GptOssForCausalLM"}, make_gpt_oss},
    Architecture{"mixtral", {}, {"MixtralForCausalLM"}, make_mixtral},
    Architecture{"qwen2_moe", {"qwen2moe"}, {"Qwen2MoeForCausalLM"}, make_qwen2_moe},
    Architecture{"olmoe", {"olmoe"}, {"OlmoeForCausalLM"}, make_olmoe},
    Architecture{"glm4_moe", {"glm4moe"}, {"Glm4MoeForCausalLM"}, make_glm4_moe, make_glm4_moe_heads},
    Architecture{"deepseek",
                 {"deepseek2"},
                 {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM", "deepseek_v2",
                  "deepseek_v3", "glm4_moe_lite"},
                 make_deepseek,
                 make_deepseek_heads},
    Architecture{"minicpm3", {"minicpm3"}, {"MiniCPM3ForCausalLM"}, make_minicpm3},
    Architecture{"granitemoe",
                 {"granitemoe"},
                 {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "granitemoeshared"},
                 make_granitemoe},
    Architecture{"ernie4_5_moe", {"ernie4_5-moe"}, {"Ernie4_5_MoeForCausalLM"}, make_ernie4_5_moe},
    Architecture{"minimax_m2", {"minimax-m2"}, {"MiniMaxM2ForCausalLM"}, make_minimax_m2},
    Architecture{"phimoe", {"phimoe"}, {"PhimoeForCausalLM", "PhiMoEForCausalLM"}, make_phimoe},
    Architecture{"lfm2", {"lfm2"}, {"Lfm2ForCausalLM"}, make_lfm2},
    Architecture{"lfm2_moe", {"lfm2moe"}, {"Lfm2MoeForCausalLM"}, make_lfm2_moe},
    Architecture{"mamba2", {"mamba2"}, {"Mamba2ForCausalLM"}, make_mamba2},
    Architecture{"granitemoehybrid", {"granitehybrid"}, {"GraniteMoeHybridForCausalLM"}, make_granitemoehybrid},
    Architecture{"falcon_h1", {"falcon-h1"}, {"FalconH1ForCausalLM"}, make_falcon_h1},
    Architecture{"nemotron_h", {"nemotron_h", "nemotron_h_moe"}, {"NemotronHForCausalLM"}, make_nemotron_h},
    Architecture{"qwen3_moe", {"qwen3moe"}, {"Qwen3MoeForCausalLM"}, make_qwen3_moe},
    Architecture{"qwen3_next", {"qwen3next"}, {"Qwen3NextForCausalLM"}, make_qwen3_next, make_qwen3_next_heads},
    Architecture{"qwen3_5",
                 {"qwen35"},
                 {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"},
                 make_qwen3_5,
                 make_qwen3_5_heads},
    Architecture{"qwen3_5_moe",
                 {"qwen35moe"},
                 {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"},
                 make_qwen3_5_moe,
                 make_qwen3_5_moe_heads},
    Architecture{"bert",
                 {"bert"},
                 {"BertModel", "BertForMaskedLM", "BertForSequenceClassification", "RobertaModel", "RobertaForMaskedLM",
                  "RobertaForSequenceClassification", "XLMRobertaModel", "XLMRobertaForMaskedLM",
                  "XLMRobertaForSequenceClassification", "CamembertModel", "CamembertForMaskedLM",
                  "CamembertForSequenceClassification", "roberta", "xlm-roberta", "camembert"},
                 make_bert},
    Architecture{"nomic_bert", {"nomic-bert"}, {"NomicBertModel"}, make_nomic_bert},
    Architecture{"modernbert",
                 {"modern-bert"},
                 {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
                 make_modernbert},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture& find_architecture(const WeightSource& source) {
  const std::string& wanted = source.config().architecture();
  const bool gguf = source.convention() == WeightSource::Convention::Gguf;
  std::string supported;
  for (const auto& candidate : kArchitectures) {
    const auto& names = gguf ? candidate.gguf : candidate.hf;
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return candidate;
    if (!gguf && candidate.name == wanted) return candidate;
    supported += (supported.empty() ? "" : ", ") + std::string(candidate.name);
  }
  if (wanted.empty()) {
    fail(ErrorKind::BadFile, "{}: {} names no architecture", source.origin(), gguf ? "the metadata" : "config.json");
  }
  fail(ErrorKind::Unsupported, "{}: architecture '{}' is not supported; millrace runs {}", source.origin(), wanted,
       supported);
}

}  // namespace millrace
