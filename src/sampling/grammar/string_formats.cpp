#include "sampling/grammar/string_formats.h"

#include <array>
#include <utility>

namespace millrace {
namespace {

// Days that exist in every year.
#define MR_DATE                                                                                                        \
  "([1-2][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-" \
  "8])))"
#define MR_TIME "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))"
#define MR_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define MR_LABEL "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
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
    {"uri-reference", "^(https?://" MR_HOST ")?" MR_PATH "$"},
    {"uri-template", "^https?://" MR_HOST MR_PATH "$"},
    {"iri", "^https?://" MR_HOST MR_PATH "$"},
    {"iri-reference", "^(https?://" MR_HOST ")?" MR_PATH "$"},
    {"idn-email", "^[A-Za-z0-9]{1,30}@" MR_LABEL "(\\." MR_LABEL "){1,4}$"},
    {"idn-hostname", "^" MR_HOST "$"},
    {"relative-json-pointer", "^[1-9][0-9]?(/[A-Za-z0-9_-]{0,60}){0,16}$"},
    {"json-pointer", "^(/[A-Za-z0-9_-]{0,60}){0,16}$"},
    {"regex", "^[A-Za-z0-9 _-]{0,200}$"},
    {"byte", "^([A-Za-z0-9+/]{4}){0,400}$"},
    {"password", "^[ -~]{0,200}$"},
}};

struct ShortFormat {
  std::string_view name;
  int64_t below;  // lengths at which it is used
  std::string_view regex;
};

constexpr std::array<ShortFormat, 5> kShortFormats = {{
    {"email", 200, "^[A-Za-z0-9]{1,12}(\\.[A-Za-z0-9]{1,8})?@[a-z0-9]{1,10}\\.[a-z]{2,4}$"},
    {"hostname", 160, "^[a-z0-9]{1,12}(\\.[a-z0-9]{1,8})?\\.[a-z]{2,4}$"},
    {"uri", 800, "^https?://[a-z0-9]{1,12}\\.[a-z]{2,4}(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"uri-reference", 700, "^(https?://[a-z0-9]{1,12}\\.[a-z]{2,4})?(/[A-Za-z0-9_-]{0,10}){0,3}$"},
    {"iri", 700, "^https?://[a-z0-9]{1,12}\\.[a-z]{2,4}(/[A-Za-z0-9_-]{0,10}){0,3}$"},
}};

#undef MR_DATE
#undef MR_TIME
#undef MR_BYTE
#undef MR_LABEL
#undef MR_HOST
#undef MR_PATH

}  // namespace

std::string_view string_format_regex(std::string_view format, int64_t most) {
  for (const auto& [name, below, regex] : kShortFormats) {
    if (name == format && most >= 0 && most < below) return regex;
  }
  for (const auto& [name, regex] : kFormats) {
    if (name == format) return regex;
  }
  return {};
}

}  // namespace millrace
