#include "grammar/schema/string_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

// Without February 29.
#define MR_DATE                                                                                                        \
  "([1-2][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-" \
  "8])))"
#define MR_TIME "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))"
#define MR_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
// Without two hyphens in a row: as third and fourth characters they mark an encoded label.
#define MR_LABEL "[a-z0-9]{1,15}(-[a-z0-9]{1,15})?"
#define MR_HOST "(" MR_LABEL "(\\." MR_LABEL "){0,4})"
#define MR_PATH "(/[A-Za-z0-9._~-]{0,60}){0,8}"

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kFormats = {{
    {"date-time", "^" MR_DATE "T" MR_TIME "$"},
    {"date", "^" MR_DATE "$"},
    {"time", "^" MR_TIME "$"},
    {"duration", "^P([0-9]{1,3}D(T([0-9]{1,2}H)([0-9]{1,2}M)?)?|T[0-9]{1,3}[HMS]|[0-9]{1,3}[YMW])$"},
    {"email", "^[A-Za-z0-9]([A-Za-z0-9_+-]|\\.[A-Za-z0-9]){0,40}@" MR_LABEL "(\\." MR_LABEL "){1,4}$"},
    {"hostname", "^" MR_HOST "$"},
    {"ipv4", "^" MR_BYTE "(\\." MR_BYTE "){3}$"},
    {"ipv6", "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"uri", "^https?://" MR_HOST "(:[1-9][0-9]{1,3})?" MR_PATH "(\\?[A-Za-z0-9=&_-]{0,80})?(#[A-Za-z0-9_-]{0,40})?$"},
    {"uri-reference", "^(https?://" MR_HOST MR_PATH "|(/[A-Za-z0-9._~-]{0,60}){1,8})$"},
    {"uri-template", "^https?://" MR_HOST MR_PATH "$"},
    {"iri", "^https?://" MR_HOST MR_PATH "$"},
    {"iri-reference", "^(https?://" MR_HOST MR_PATH "|(/[A-Za-z0-9._~-]{0,60}){1,8})$"},
    {"idn-email", "^[A-Za-z0-9]{1,30}@" MR_LABEL "(\\." MR_LABEL "){1,4}$"},
    {"idn-hostname", "^[a-z0-9]{1,20}(-[a-z0-9]{1,20})?(\\.[a-z0-9]{1,20}){0,4}$"},
    {"relative-json-pointer", "^[1-9][0-9]?(/[A-Za-z0-9_-]{0,60}){0,16}$"},
    {"json-pointer", "^(/[A-Za-z0-9_-]{0,60}){0,16}$"},
    {"regex", "^[A-Za-z0-9 _-]{0,200}$"},
    {"byte", "^([A-Za-z0-9+/]{4}){0,400}$"},
    {"password", "^[ -~]{0,200}$"},
}};

struct ShortFormat {
  std::string_view name;
  int64_t below;  // used for maxLength below this
  std::string_view regex;
};

constexpr std::array<ShortFormat, 11> kShortFormats = {{
    {"email", 250, "^[A-Za-z0-9]{1,12}(\\.[A-Za-z0-9]{1,8})?@[a-z0-9]{1,10}\\.[a-z]{2,4}$"},
    {"hostname", 160, "^[a-z0-9]{1,12}(\\.[a-z0-9]{1,8})?\\.[a-z]{2,4}$"},
    {"uri", 800, "^https?://[a-z0-9]{1,12}\\.[a-z]{2,4}(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"uri-reference", 700, "^(https?://[a-z0-9]{1,12}\\.[a-z]{2,4})?(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"iri", 700, "^https?://[a-z0-9]{1,12}\\.[a-z]{2,4}(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"iri-reference", 700, "^(https?://[a-z0-9]{1,12}\\.[a-z]{2,4})?(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"uri-template", 700, "^https?://[a-z0-9]{1,12}\\.[a-z]{2,4}(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"idn-email", 250, "^[A-Za-z0-9]{1,12}@[a-z0-9]{1,10}\\.[a-z]{2,4}$"},
    {"idn-hostname", 160, "^[a-z0-9]{1,12}(\\.[a-z0-9]{1,8})?\\.[a-z]{2,4}$"},
    {"json-pointer", 976, "^(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"relative-json-pointer", 978, "^[1-9](/[A-Za-z0-9_-]{0,10}){0,3}$"},
}};

#undef MR_DATE
#undef MR_TIME
#undef MR_BYTE
#undef MR_LABEL
#undef MR_HOST
#undef MR_PATH

// The local part (up to 64 characters) takes up the length; @ and domain have 5 to 16 characters. Empty: the bounds are
// too narrow or too large.
std::string email_of_length(Lengths lengths) {
  const int64_t least = std::max<int64_t>(lengths.least - 5, 1);
  const int64_t most = lengths.most < 0 ? 64 : std::min<int64_t>(lengths.most - 16, 64);
  if (least > most) return {};
  return fmt::format("^[A-Za-z0-9]{{{},{}}}@[a-z0-9]{{1,10}}\\.[a-z]{{2,4}}$", least, most);
}

// A long text of a format: a fixed beginning, then one run of characters that takes up the length. Empty: the format
// has none, or the bounds do not need it.
std::string long_format_regex(std::string_view format, Lengths lengths) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kBegins = {{
      {"json-pointer", "/"},
      {"relative-json-pointer", "1/"},
      {"uri", "https://example.com/"},
      {"uri-reference", "/"},
      {"uri-template", "https://example.com/"},
      {"iri", "https://example.com/"},
      {"iri-reference", "/"},
  }};
  constexpr int64_t kLong = 20;  // shorter texts have several parts
  if (lengths.least <= kLong) return {};
  for (const auto& [name, begin] : kBegins) {
    if (name != format) continue;
    const int64_t least = lengths.least - std::ssize(begin);
    const int64_t most = lengths.most < 0 ? least + 60 : lengths.most - std::ssize(begin);
    return fmt::format("^{}[A-Za-z0-9_-]{{{},{}}}$", begin, least, most);
  }
  return {};
}

}  // namespace

std::string string_format_regex(std::string_view format, Lengths lengths) {
  const int64_t most = lengths.most;
  if (std::string regex = long_format_regex(format, lengths); !regex.empty()) return regex;
  if ((format == "email" || format == "idn-email") && lengths.least > 5) {
    if (std::string regex = email_of_length(lengths); !regex.empty()) return regex;
    if (lengths.least > 69)
      fail(ErrorKind::Usage, "the schema wants an e-mail address of {} or more characters; 69 can be written",
           lengths.least);
  }
  if (format == "byte" && (lengths.least > 0 || most >= 0)) {
    const int64_t fewest = (lengths.least + 3) / 4, fours = most < 0 ? std::max<int64_t>(fewest, 400) : most / 4;
    return fmt::format("^([A-Za-z0-9+/]{{4}}){{{},{}}}$", fewest, std::min<int64_t>(std::max(fours, fewest), 2400));
  }
  for (const auto& [name, below, regex] : kShortFormats) {
    if (name == format && most >= 0 && most < below) return std::string(regex);
  }
  for (const auto& [name, regex] : kFormats) {
    if (name == format) return std::string(regex);
  }
  return {};
}

std::string_view loose_format_regex(std::string_view format) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kLoose = {{
      {"date-time", "^[0-9]{4}-[\\s\\S]*:"},
      {"date", "^[0-9W-]*$"},
      {"time", "^[0-9]{1,2}:"},
      {"duration", "^[-+]?[Pp]"},
      {"email", "@"},
      {"idn-email", "@"},
      {"hostname", "^[A-Za-z0-9._-]*$"},
      {"idn-hostname", "^[^ ]*$"},
      {"ipv4", "^[0-9.]*$"},
      {"ipv6", ":"},
      {"uuid", "^[0-9A-Fa-f{}-]{32,}$"},
      {"uri", ":"},
      {"iri", ":"},
      {"uri-reference", "^[^ ]*$"},
      {"iri-reference", "^[^ ]*$"},
      {"uri-template", "^[^ ]*$"},
      {"json-pointer", "^$|^/"},
      {"relative-json-pointer", "^[0-9]"},
  }};
  for (const auto& [name, regex] : kLoose) {
    if (name == format) return regex;
  }
  return {};
}

}  // namespace millrace
