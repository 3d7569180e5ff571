// Texts on which pre-tokenizers and normalizers differ: spaces, digits, contractions, scripts, symbols, emoji.
#pragma once

#include <span>
#include <string_view>

namespace millrace {

std::span<const std::string_view> tokenizer_probes();

}  // namespace millrace
