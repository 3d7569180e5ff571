// Any bytes as a package index page, in both formats.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "store/simple_index.h"

namespace {

void check(const std::optional<millrace::IndexedFile>& found) {
  if (found && !found->sha256.empty() && found->sha256.size() != 64) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view page(reinterpret_cast<const char*>(data), size);
  check(find_in_html_index(page, "p-1.whl"));
  try {
    check(find_in_json_index(page, "p-1.whl"));
  } catch (const Error&) {
  }
  return 0;
}
