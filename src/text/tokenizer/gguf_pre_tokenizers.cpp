// The steps follow the tokenizer.json of the models behind each name, where known. llama.cpp, which coined the names,
// approximates some of them.
#include "text/tokenizer/gguf_pre_tokenizers.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/unicode/properties.h"

namespace millrace {
namespace {

struct Step {
  enum Kind { Regex, Digits, DigitRuns, PunctuationRuns, Gpt2Words, Bytes } kind;
  const char* regex = nullptr;
};

struct Entry {
  std::vector<std::string_view> names;
  std::vector<Step> steps;
  bool nfc = false, ignore_merges = false, add_bos = false;
};

constexpr Step kBytes{Step::Bytes};
constexpr Step kGpt2Words{Step::Gpt2Words};
constexpr Step kDigits{Step::Digits};

constexpr Step regex(const char* pattern) { return {Step::Regex, pattern}; }

#define MR_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define MR_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define MR_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MR_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MR_BORDER R"([^\r\n\p{L}\p{N}]?)"
#define MR_SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define MR_NOT_HAN R"(&&[^\p{Han}]])"

constexpr const char* kLlama3 = MR_CONTRACTIONS "|" MR_BORDER R"(\p{L}+|\p{N}{1,3})" MR_SYMBOLS MR_SPACES;
constexpr const char* kQwen2 = MR_CONTRACTIONS "|" MR_BORDER R"(\p{L}+|\p{N})" MR_SYMBOLS MR_SPACES;
constexpr const char* kQwen35 =
    MR_CONTRACTIONS "|" MR_BORDER R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" MR_SPACES;
constexpr const char* kTekken = MR_BORDER MR_UPPER "*" MR_LOWER "+|" MR_BORDER MR_UPPER "+" MR_LOWER
                                                   R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MR_SPACES;
constexpr const char* kGpt4o =
    MR_BORDER MR_UPPER "*" MR_LOWER "+" MR_CONTRACTIONS "?|" MR_BORDER MR_UPPER "+" MR_LOWER "*" MR_CONTRACTIONS
                       R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" MR_SPACES;
constexpr const char* kKimi =
    R"([\p{Han}]+|)" MR_BORDER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})" MR_NOT_HAN R"(*[\p{Ll}\p{Lm}\p{Lo}\p{M})" MR_NOT_HAN
    "+" MR_CONTRACTIONS "?|" MR_BORDER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})" MR_NOT_HAN
    R"(+[\p{Ll}\p{Lm}\p{Lo}\p{M})" MR_NOT_HAN "*" MR_CONTRACTIONS R"(?|\p{N}{1,3})" MR_SYMBOLS MR_SPACES;
constexpr const char* kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kBloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

constexpr const char* kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" MR_SPACES;
constexpr const char* kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}À-ÖØ-öø-ƺƼ-ƿ\x{1C4}-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-\x{3F5}Ϸ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷ)"
    R"(ᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ\x{2102})"
    R"(\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}ⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ)"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kDeepSeekSymbols =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr const char* kDeepSeekCjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = {
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "jais", "trillion", "granite-docling"},
       {kGpt2Words}},
      {{"mpt", "olmo"}, {kGpt2Words}, /*nfc=*/true},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {regex(kLlama3), kBytes},
       false,
       /*ignore_merges=*/true,
       /*add_bos=*/true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {regex(kLlama3), kBytes}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}, {regex(kQwen2), kBytes}, /*nfc=*/true},
      {{"stablelm2", "hunyuan", "solar-open", "grok-2"}, {regex(kQwen2), kBytes}},
      // Without normalization, like the test vectors of llama.cpp for this name.
      {{"qwen35"}, {regex(kQwen35), kBytes}},
      {{"deepseek-llm"},
       {regex("[\r\n]"), regex(kDeepSeekLetters), regex(kDeepSeekSymbols), regex(R"(\s+$)"), regex(kDeepSeekCjk),
        kDigits, kBytes}},
      {{"deepseek-coder"},
       {regex("[\r\n]"), regex(R"(\s?\p{L}+)"), regex(R"(\s?\p{P}+)"), regex(kDeepSeekCjk), kDigits, kBytes}},
      {{"deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"},
       {regex(R"(\p{N}{1,3})"), regex(R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"), regex(kDeepSeek3),
        kBytes}},
      {{"falcon"}, {{Step::PunctuationRuns}, kGpt2Words, {Step::DigitRuns}, regex("[0-9][0-9][0-9]")}},
      {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}, {kDigits, kGpt2Words}},
      {{"command-r"}, {kDigits, kGpt2Words}, /*nfc=*/true},
      {{"tekken"}, {regex(kTekken), kBytes}, false, /*ignore_merges=*/true, /*add_bos=*/true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {regex(kGpt4o), kBytes}},
      {{"granite-embed-multi-97m"}, {regex(kGpt4o), kBytes}, false, /*ignore_merges=*/true},
      {{"tiny_aya", "cohere2moe"}, {regex(R"(\d{1,3}(?=(?:\d{3})*\b))"), regex(kGpt4o), kBytes}},
      {{"kimi-k2"}, {regex(kKimi), kBytes}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {regex(kBailing), kBytes}},
      {{"seed-coder"},
       {regex(MR_CONTRACTIONS "|" MR_BORDER R"(\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" MR_SPACES), kBytes}},
      {{"minicpm5"},
       {regex(R"(\p{N}{1,3})"), regex(MR_CONTRACTIONS "|" MR_BORDER R"(\p{L}+|\p{N}+)" MR_SYMBOLS MR_SPACES), kBytes},
       false,
       /*ignore_merges=*/true},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {regex(kBloom), kBytes}},
      {{"viking"}, {regex(kBloom), kDigits, kBytes}},
      {{"superbpe"}, {regex(R"(\p{N}+)"), regex(R"((?=(\d{3})+(?!\d)))"), kBytes}},
      // For older files without a name.
      {{"", "default"}, {regex(R"([\p{P}\$\+<=>\^~\|]+)"), kGpt2Words, {Step::DigitRuns}, regex("[0-9][0-9][0-9]")}},
  };
  return list;
}

std::unique_ptr<PreTokenizer> make_step(const Step& step) {
  switch (step.kind) {
    case Step::Regex:
      return make_split(Pattern::regex(step.regex), SplitBehavior::Isolated, false);
    case Step::Digits:
      return make_character_split(is_numeric, SplitBehavior::Isolated);
    case Step::DigitRuns:
      return make_character_split(is_numeric, SplitBehavior::Contiguous);
    case Step::PunctuationRuns:
      return make_character_split(is_punctuation, SplitBehavior::Contiguous);
    case Step::Gpt2Words:
      return make_byte_level(false, true);
    case Step::Bytes:
      return make_byte_level(false, false);
  }
  return nullptr;
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) == entry.names.end()) continue;
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (const Step& step : entry.steps) steps.push_back(make_step(step));
    return {make_sequence(std::move(steps)), entry.nfc, entry.ignore_merges, entry.add_bos};
  }
  fail(ErrorKind::Unsupported, "the pre-tokenizer '{}' (tokenizer.ggml.pre) is not supported", name);
}

std::vector<GgufPreTokenizerName> gguf_pre_tokenizer_names() {
  std::vector<GgufPreTokenizerName> names;
  for (const Entry& entry : entries()) {
    if (!entry.names.front().empty()) names.push_back({entry.names.front(), entry.nfc, entry.ignore_merges});
  }
  return names;
}

}  // namespace millrace
