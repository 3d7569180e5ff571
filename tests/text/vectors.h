// Loads the vectors of tests/data/tokenizers, which scripts/make_tokenizer_vectors.py writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "vocabulary_file.h"

namespace millrace {

inline nlohmann::json read_vectors(const std::string& name) {
  return nlohmann::json::parse(read_file(std::string(MILLRACE_TEST_DATA) + "/tokenizers/" + name));
}

// The mixed corpus. Some of its texts are not UTF-8.
inline const std::vector<std::string>& corpus() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> list;
    const auto vectors = read_vectors("texts.json");
    for (const auto& hex : vectors.at("hex")) {
      const auto digits = hex.get<std::string>();
      std::string& text = list.emplace_back();
      for (size_t i = 0; i < digits.size(); i += 2) {
        text.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
      }
    }
    return list;
  }();
  return texts;
}

}  // namespace millrace
