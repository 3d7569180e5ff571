#include "formats/byte_vocabulary.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

constexpr std::array kSpecial{"<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"};
constexpr int64_t kEnd = 256;  // id of the first special token
enum TokenType : int32_t { Normal = 1, Control = 3, Unused = 5 };

// Byte-level BPE writes each byte as a printable character: itself, or, if it is not printable, one from U+0100 on.
std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const uint32_t c = printable ? byte : next++;
    if (c < 0x80) {
      characters[byte] = {static_cast<char>(c)};
    } else {
      characters[byte] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
  }
  return characters;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::string merge;  // of two bytes that no text contains: GGUF readers refuse a file without merges
};

Vocabulary byte_vocabulary(int64_t size) {
  MR_ASSERT(size >= kLeastByteVocabulary);
  Vocabulary v;
  const auto add = [&](std::string token, TokenType type) {
    v.tokens.push_back(std::move(token));
    v.types.push_back(type);
  };
  const auto characters = byte_characters();
  for (const std::string& character : characters) add(character, Normal);
  for (const char* special : kSpecial) add(special, Control);
  add(characters[0xFF] + characters[0xFF], Normal);
  v.merge = characters[0xFF] + ' ' + characters[0xFF];
  while (std::ssize(v.tokens) < size) add(fmt::format("[{}]", v.tokens.size()), Unused);
  return v;
}

}  // namespace

void add_byte_vocabulary(int64_t size, GgufMetadataBuilder& m) {
  const Vocabulary v = byte_vocabulary(size);
  m.add_string("tokenizer.ggml.model", "gpt2");
  m.add_string("tokenizer.ggml.pre", "gpt-2");
  m.add_string_list("tokenizer.ggml.tokens", v.tokens);
  m.add_i32_list("tokenizer.ggml.token_type", v.types);  // llama.cpp refuses unsigned ones
  m.add_string_list("tokenizer.ggml.merges", std::vector{v.merge});
  m.add_u32("tokenizer.ggml.eos_token_id", kEnd);
  m.add_bool("tokenizer.ggml.add_bos_token", false);
  m.add_string("tokenizer.chat_template", byte_chat_template());
}

std::string byte_tokenizer_json(int64_t size) {
  const Vocabulary v = byte_vocabulary(size);
  nlohmann::json added = nlohmann::json::array(), ids = nlohmann::json::object();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    ids[v.tokens[id]] = id;
    if (v.types[id] == Control) added.push_back({{"id", id}, {"content", v.tokens[id]}, {"special", true}});
  }
  const nlohmann::json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", std::move(added)},
                        {"pre_tokenizer", bytes},
                        {"decoder", bytes},
                        {"model", {{"type", "BPE"}, {"vocab", std::move(ids)}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

std::string byte_tokenizer_config() {
  return nlohmann::json{{"eos_token", kSpecial[0]}, {"chat_template", byte_chat_template()}}.dump();
}

// The markup is written out for each role: what comes from a message is never parsed as a special token.
std::string_view byte_chat_template() {
  return "{% for message in messages %}"
         "{% if message.role == 'system' %}<|system|>{% elif message.role == 'assistant' %}<|assistant|>"
         "{% elif message.role == 'tool' %}<|tool|>{% else %}<|user|>{% endif %}"
         "{{ message.content }}<|end|>{% endfor %}"
         "{% if add_generation_prompt %}<|assistant|>{% endif %}";
}

}  // namespace millrace
