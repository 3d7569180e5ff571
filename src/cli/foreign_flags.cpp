#include "cli/foreign_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/nearest.h"

namespace millrace {
namespace {

// Flags of llama.cpp, Ollama, vLLM and the like.
struct Foreign {
  std::string_view flag, advice;
};
constexpr std::array kForeign{
    Foreign{"--image", "millrace reads text only"},
    Foreign{"--images", "millrace reads text only"},
    Foreign{"--mmproj", "millrace reads text only"},
    Foreign{"--audio", "millrace reads text only"},
    Foreign{"--video", "millrace reads text only"},
    Foreign{"--lora-modules", "here it is --lora NAME=PATH"},
    Foreign{"--enable-lora", "here --lora NAME=PATH suffices; --lora-dir lets clients load more"},
    Foreign{"--lora-scaled", "here it is --lora NAME=PATH, with the adapter's own scale"},
    Foreign{"-md", "here it is --draft MODEL"},
    Foreign{"--model-draft", "here it is --draft MODEL"},
    Foreign{"--speculative-config", "here it is --draft lookup, mtp, none, MODEL or an EAGLE-3 folder"},
    Foreign{"-p", "the prompt is an argument: millrace run \"PROMPT\""},
    Foreign{"--prompt", "the prompt is an argument: millrace run \"PROMPT\""},
    Foreign{"-i", "'millrace chat' holds a conversation"},
    Foreign{"-cnv", "'millrace chat' holds a conversation"},
    Foreign{"--interactive", "'millrace chat' holds a conversation"},
    Foreign{"--conversation", "'millrace chat' holds a conversation"},
    Foreign{"-c", "here it is --ctx"},
    Foreign{"--ctx-size", "here it is --ctx"},
    Foreign{"--max-model-len", "here it is --ctx"},
    Foreign{"-ngl", "here it is --device cuda; --gpu-memory SIZE limits what it takes"},
    Foreign{"--n-gpu-layers", "here it is --device cuda; --gpu-memory SIZE limits what it takes"},
    Foreign{"--n-cpu-moe", "here it is --gpu-memory SIZE: experts that do not fit stay in host memory"},
    Foreign{"--cpu-moe", "here it is --gpu-memory SIZE: experts that do not fit stay in host memory"},
    Foreign{"--gpu-layers", "here it is --device cuda; --gpu-memory SIZE limits what it takes"},
    Foreign{"--n-predict", "here it is -n or --max-tokens"},
    Foreign{"--predict", "here it is -n or --max-tokens"},
    Foreign{"--repeat-penalty", "here it is --repetition-penalty"},
    Foreign{"--json-schema", "here it is --schema"},
    Foreign{"--json-schema-file", "here it is --schema"},
    Foreign{"--grammar-file", "here it is --grammar"},
    Foreign{"--format", "here it is --schema"},
    Foreign{"--chat-template", "here it is --template"},
    Foreign{"--chat-template-file", "here it is --template"},
    Foreign{"--system-prompt", "here it is --system"},
    Foreign{"-sys", "here it is --system"},
    Foreign{"--think", "here it is --thinking on or off"},
    Foreign{"--reasoning-budget", "here it is --thinking on or off"},
    Foreign{"--prompt-cache", "here it is --session"},
    Foreign{"--cache-type-k", "here it is --kv-type, for keys and values"},
    Foreign{"--cache-type-v", "here it is --kv-type, for keys and values"},
    Foreign{"--mlock", "millrace maps model files and locks none"},
    Foreign{"--no-mmap", "millrace always maps model files"},
};

std::string_view advice_about(std::string_view flag) {
  const auto found = std::find_if(kForeign.begin(), kForeign.end(), [&](const Foreign& f) { return f.flag == flag; });
  return found == kForeign.end() ? "" : found->advice;
}

std::string nearest_flag(const std::string& flag, const CLI::App& verb) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  return flag.starts_with("--") ? did_you_mean(flag, known) : "";
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
    if (!word.starts_with("-") || word == "-") continue;
    const std::string hint = nearest_flag(name_of(word), verb);
    return fmt::format("{}: there is no such option{}{}", word, hint.empty() ? "" : "; ", hint);
  }
  return "";
}

std::string describe_unexpected_word(const CLI::App& verb) {
  for (const std::string& word : verb.remaining()) {
    if (word.starts_with("-")) continue;
    if (verb.get_name() == "run") return "the prompt is one argument: put it into quotes, millrace run \"PROMPT\"";
    const CLI::Option* model = verb.get_option_no_throw("--model");
    if (model == nullptr || model->count() > 0) return fmt::format("unexpected argument '{}'", word);
    return fmt::format("unexpected argument '{}'; a model is given as -m MODEL", word);
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
