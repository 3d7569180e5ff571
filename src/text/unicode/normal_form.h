// The four Unicode normalization forms, in time linear in the text up to the length of runs of combining marks.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

enum class UnicodeForm { Nfc, Nfd, Nfkc, Nfkd };

std::string normalized(std::string_view text, UnicodeForm form);  // valid UTF-8 only

std::string lowercased(std::string_view text);  // character by character, without regard to context

}  // namespace millrace
