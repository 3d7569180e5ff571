#include "vocabulary_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "text/tokenizer/base64.h"

namespace millrace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorKind::NotFound, "{}: cannot be read", path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

GgufVocabulary parse_gguf_vocabulary(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  GgufVocabulary v;
  const auto read = [&](const char* key, auto& value) {
    if (json.contains(key)) value = json.at(key).get<std::decay_t<decltype(value)>>();
  };
  const auto read_optional = [&]<class T>(const char* key, std::optional<T>& value) {
    if (json.contains(key)) value = json.at(key).get<T>();
  };
  read("architecture", v.architecture), read("model", v.model), read("pre", v.pre);
  read("tokens", v.tokens), read("scores", v.scores), read("token_type", v.types), read("merges", v.merges);
  read_optional("bos_token_id", v.bos), read_optional("eos_token_id", v.eos),
      read_optional("unknown_token_id", v.unknown);
  read_optional("padding_token_id", v.padding), read_optional("eot_token_id", v.eot),
      read_optional("eom_token_id", v.eom);
  read_optional("add_bos_token", v.add_bos), read_optional("add_eos_token", v.add_eos);
  read_optional("add_space_prefix", v.add_space_prefix),
      read_optional("remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (json.contains("precompiled_charsmap")) {
    v.precompiled_charsmap = decode_base64(json.at("precompiled_charsmap").get<std::string>());
  }
  return v;
}

std::shared_ptr<const Tokenizer> open_vocabulary(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  if (path.string().ends_with(".gguf.json")) return tokenizer_from_gguf(parse_gguf_vocabulary(text));
  const auto config = path.parent_path() / "tokenizer_config.json";
  const bool folder = path.filename() == "tokenizer.json" && std::filesystem::exists(config);
  return tokenizer_from_json(text, folder ? read_file(config) : "");
}

}  // namespace millrace
