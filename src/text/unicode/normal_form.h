// The four Unicode normalization forms, in O(n log n) for runs of combining marks and linear time otherwise.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

enum class UnicodeForm { Nfc, Nfd, Nfkc, Nfkd };

std::string normalized(std::string_view text, UnicodeForm form);  // valid UTF-8 only

std::string lowercased(std::string_view text);  // by character, without context

}  // namespace millrace
