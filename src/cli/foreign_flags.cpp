#include "cli/foreign_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/nearest.h"

namespace millrace {
namespace {

// Flags of llama.cpp, Ollama, vLLM and the like, with - for _.
struct Foreign {
  std::string_view flags;  // separated by blanks
  std::string_view advice;
};
constexpr std::array kForeign{
    Foreign{"--image --images --mmproj --audio --video", "millrace reads text only"},
    Foreign{"--lora-modules", "here it is --lora NAME=PATH"},
    Foreign{"--enable-lora", "here --lora NAME=PATH suffices; --lora-dir lets clients load more"},
    Foreign{"--lora-scaled", "here it is --lora NAME=PATH, with the adapter's own scale"},
    Foreign{"-md --model-draft", "here it is --draft MODEL"},
    Foreign{"--speculative-config", "here it is --draft lookup, mtp, none, MODEL or an EAGLE-3 folder"},
    Foreign{"-p --prompt", "the prompt is an argument: millrace run \"PROMPT\""},
    Foreign{"-i -cnv --interactive --conversation", "'millrace chat' holds a conversation"},
    Foreign{"--stream", "answers are always streamed"},
    Foreign{"--hf-repo", "here it is -m OWNER/NAME"},
    Foreign{"-c --ctx-size --n-ctx --num-ctx --context-length --max-model-len", "here it is --ctx"},
    Foreign{"-ngl --n-gpu-layers --gpu-layers --num-gpu",
            "here it is --device cuda; --gpu-memory SIZE limits what it takes"},
    Foreign{"--gpu --cuda", "here it is --device cuda"},
    Foreign{"-mg --main-gpu", "here it is --device cuda:N"},
    Foreign{"--gpu-memory-utilization --mem-fraction-static", "here it is --gpu-memory SIZE, as 24GB"},
    Foreign{"--n-cpu-moe --cpu-moe --cpu-offload-gb",
            "here it is --gpu-memory SIZE: experts that do not fit stay in host memory"},
    Foreign{"-sm -ts -tp --split-mode --tensor-split --tensor-parallel-size --pipeline-parallel-size --tp-size",
            "a model runs on one device"},
    Foreign{"--dtype --quantization", "a model runs in its file's number format; 'millrace quantize' writes another"},
    Foreign{"-fa --flash-attn", "attention is always fused"},
    Foreign{"--n-predict --predict --num-predict --max-new-tokens", "here it is -n or --max-tokens"},
    Foreign{"--repeat-penalty", "here it is --repetition-penalty"},
    Foreign{"--json-schema --json-schema-file --format", "here it is --schema"},
    Foreign{"--grammar-file", "here it is --grammar"},
    Foreign{"--chat-template --chat-template-file", "here it is --template"},
    Foreign{"--jinja", "chat templates are always Jinja"},
    Foreign{"-sys --system-prompt", "here it is --system"},
    Foreign{"--think --reasoning-budget", "here it is --thinking on, off or N"},
    Foreign{"--prompt-cache", "here it is --session"},
    Foreign{"-ctk -ctv --cache-type-k --cache-type-v --kv-cache-dtype", "here it is --kv-type, for keys and values"},
    Foreign{"--mlock", "millrace maps model files and locks none"},
    Foreign{"--no-mmap", "millrace always maps model files"},
    Foreign{"--rope-scaling --rope-freq-base --rope-freq-scale", "RoPE follows the model's config"},
    Foreign{"-np --max-num-seqs --max-running-requests", "here it is --parallel"},
    Foreign{"-ub --ubatch-size --max-num-batched-tokens", "millrace chooses the rows of a step"},
    Foreign{"--enable-prefix-caching", "prefixes are cached unless --no-prefix-cache is given"},
    Foreign{"--trust-remote-code", "no code of a model's folder is run"},
    Foreign{"--alias", "here it is --served-model-name"},
    Foreign{"--api-key", "here it is --api-key-file FILE"},
    Foreign{"--log-level --verbosity", "here it is -v or -vv"},
    Foreign{"--base-url --server", "here it is --url"},
    Foreign{"--request-rate --rps --qps", "here it is --rate"},
    Foreign{"--max-concurrency --users", "here it is --concurrency"},
    Foreign{"--num-prompts", "here it is --requests"},
    Foreign{"--outfile --output", "here it is --out"},
    Foreign{"--outtype", "here it is --type"},
};

bool has_word(std::string_view words, std::string_view wanted) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

std::string_view advice_about(std::string flag) {
  std::replace(flag.begin(), flag.end(), '_', '-');
  const auto found = std::find_if(kForeign.begin(), kForeign.end(), [&](auto& f) { return has_word(f.flags, flag); });
  return found == kForeign.end() ? "" : found->advice;
}

std::string verb_with(const std::string& flag, const CLI::App& verb) {
  if (verb.get_parent() == nullptr || !flag.starts_with("--")) return "";
  for (const CLI::App* other : verb.get_parent()->get_subcommands([](const CLI::App*) { return true; })) {
    if (other->get_option_no_throw(flag) != nullptr) return fmt::format("'millrace {}' has it", other->get_name());
  }
  return "";
}

std::string nearest_flag(const std::string& flag, const CLI::App& verb) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  return flag.starts_with("--") ? did_you_mean(flag, known) : "";
}

// The first required option that was not given.
const CLI::Option* missing_option(const CLI::App& verb) {
  const auto options = verb.get_options(
      [](const CLI::Option* o) { return o->get_required() && o->count() == 0 && !o->get_positional(); });
  return options.empty() ? nullptr : options.front();
}

}  // namespace

std::string describe_unknown_flag(std::span<char* const> words, const CLI::App& verb) {
  const auto name_of = [](std::string_view word) { return std::string(word.substr(0, word.find('='))); };
  // The whole command line, because CLI11 reads -ngl as -n with the value "gl".
  for (const char* word : words) {
    const std::string flag = name_of(word);
    const auto advice = advice_about(flag);
    if (!advice.empty() && verb.get_option_no_throw(flag) == nullptr)
      return fmt::format("{}: there is no such option; {}", word, advice);
  }
  for (const std::string& word : verb.remaining()) {
    const std::string flag = name_of(word);
    if (!word.starts_with("-") || word == "-" || word == "--") continue;
    if (verb.get_option_no_throw(flag) != nullptr) continue;  // behind --, where it is an argument
    std::string hint = verb_with(flag, verb);
    if (hint.empty()) hint = nearest_flag(flag, verb);
    return fmt::format("{}: there is no such option{}{}", word, hint.empty() ? "" : "; ", hint);
  }
  return "";
}

std::string describe_unexpected_word(const CLI::App& verb) {
  for (const std::string& word : verb.remaining()) {
    if (word.starts_with("-")) continue;
    if (verb.get_name() == "run") return "the prompt is one argument: put it into quotes, millrace run \"PROMPT\"";
    if (verb.get_name() == "chat") return "chat takes no prompt; 'millrace run' answers one";
    const CLI::Option *model = verb.get_option_no_throw("--model"), *missing = missing_option(verb);
    const bool may_be_model = model != nullptr && model->count() == 0;
    if (missing != nullptr && !(may_be_model && word.ends_with(".gguf")))
      return fmt::format("unexpected argument '{0}'; did you mean {1} {0}?", word, missing->get_name());
    return fmt::format("unexpected argument '{}'{}", word, may_be_model ? "; a model is given as -m MODEL" : "");
  }
  return "";
}

std::string hint_about_verb(const std::string& name, const CLI::App& app) {
  std::vector<std::string> known{"--help", "--version"};
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(verb->get_name());
  return did_you_mean(name, known);
}

}  // namespace millrace
