#include "sampling/border.h"

#include <algorithm>

namespace millrace {

Border find_border_of_few(std::span<BorderItem> items, double target) {
  std::sort(items.begin(), items.end(), [](const BorderItem& a, const BorderItem& b) { return a.key > b.key; });
  Border border{0, target};
  for (auto at = items.begin(); at != items.end();) {
    border.key = at->key;
    double sum = 0;
    for (; at != items.end() && at->key == border.key; ++at) sum += at->size;
    if (sum >= border.left) return border;
    border.left -= sum;
  }
  border.left =
      std::numeric_limits<double>::infinity();  // rounding: the sizes fall short of the target, so take every item
  return border;
}

}  // namespace millrace
