#include "store/hub_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json_text.h"
#include "store/safe_path.h"

namespace millrace {
namespace {

constexpr const char* kCompanions[] = {
    "config.json",     "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json",  "vocab.json",
    "merges.txt",      "chat_template.jinja",     "chat_template.json", kWeightsIndex,
};

bool holds(std::span<const std::string> listing, std::string_view name) {
  return std::find(listing.begin(), listing.end(), name) != listing.end();
}

bool is_weights_file(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos;
}

// "-00001-of-00003.gguf" at the end of a name.
constexpr size_t kSplitSuffix = 20;

bool is_split(std::string_view file) {
  if (file.size() <= kSplitSuffix) return false;
  const std::string_view suffix = file.substr(file.size() - kSplitSuffix);
  const auto digits = [&](size_t at) {
    return std::all_of(suffix.begin() + at, suffix.begin() + at + 5, is_ascii_digit);
  };
  return suffix[0] == '-' && digits(1) && suffix.substr(6, 4) == "-of-" && digits(10) && suffix.ends_with(".gguf");
}

// True if `tag` is a whole word of the name: Q4_K in x-Q4_K.gguf, but not in x-Q4_K_M.gguf.
bool has_word(std::string_view name, std::string_view tag) {
  const auto in_word = [](char c) { return is_ascii_alnum(c) || c == '_'; };
  for (auto at = name.find(tag); at != name.npos; at = name.find(tag, at + 1)) {
    const bool begins = at == 0 || !in_word(name[at - 1]);
    const bool ends = at + tag.size() == name.size() || !in_word(name[at + tag.size()]);
    if (begins && ends) return true;
  }
  return false;
}

std::vector<std::string> matching(const std::vector<std::string>& choices, const std::string& tag) {
  std::vector<std::string> words, anywhere;
  for (const std::string& choice : choices) {
    const std::string name = ascii_lower(choice);
    if (has_word(name, tag)) words.push_back(choice);
    if (name.find(tag) != std::string::npos) anywhere.push_back(choice);
  }
  return words.empty() ? anywhere : words;
}

}  // namespace

std::vector<std::string> gguf_parts(const std::string& file) {
  if (!is_split(file)) return {file};
  const int count = std::stoi(file.substr(file.size() - 10, 5));
  const std::string stem = file.substr(0, file.size() - kSplitSuffix);
  std::vector<std::string> parts;
  for (int i = 1; i <= count; ++i) parts.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, count));
  return parts.empty() ? std::vector{file} : parts;
}

std::vector<std::string> gguf_choices(std::span<const std::string> listing) {
  std::vector<std::string> choices;
  for (const std::string& file : listing) {
    const std::string name = ascii_lower(std::string_view(file).substr(file.rfind('/') + 1));
    if (!name.ends_with(".gguf") || name.starts_with("mmproj") || name.find("imatrix") != std::string::npos) continue;
    if (is_split(file) && gguf_parts(file).front() != file) continue;
    choices.push_back(file);
  }
  return choices;
}

bool is_model_folder(std::span<const std::string> listing) {
  return holds(listing, "config.json") && std::any_of(listing.begin(), listing.end(), is_weights_file);
}

std::vector<std::string> folder_companions(std::span<const std::string> listing) {
  std::vector<std::string> files;
  for (const char* name : kCompanions) {
    if (holds(listing, name)) files.emplace_back(name);
  }
  return files;
}

std::vector<std::string> folder_weights(std::span<const std::string> listing, std::string_view index_json) {
  std::set<std::string> files;
  if (!index_json.empty()) {
    const auto index = read_json(index_json);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      fail(ErrorKind::BadFile, "{}: no weight_map in it", kWeightsIndex);
    }
    for (const auto& file : index["weight_map"]) {
      if (!file.is_string() || !is_safe_relative_path(file.get<std::string>())) {
        fail(ErrorKind::BadFile, "{}: names a file that cannot be", kWeightsIndex);
      }
      files.insert(file.get<std::string>());
    }
  } else if (holds(listing, "model.safetensors")) {
    files.insert("model.safetensors");
  } else {
    std::copy_if(listing.begin(), listing.end(), std::inserter(files, files.end()), is_weights_file);
  }
  return {files.begin(), files.end()};
}

std::string choose_gguf(std::span<const std::string> listing, const HubId& id) {
  const std::vector<std::string> choices = gguf_choices(listing);
  if (choices.empty()) {
    fail(ErrorKind::Unsupported, "{} holds neither GGUF files nor config.json with safetensors", id.repository());
  }
  std::vector<std::string> fitting = id.choice.empty() ? choices : matching(choices, ascii_lower(id.choice));
  if (fitting.size() == 1) return fitting.front();
  fail(ErrorKind::Usage, "{} holds {} for '{}': say which, as {}:FILE with one of {}", id.repository(),
       fitting.empty() ? "nothing" : "several GGUF files", id.choice, id.repository(),
       fmt::join(fitting.empty() ? choices : fitting, ", "));
}

}  // namespace millrace
