#include "base/error.h"
#include "kernels/linear/rows/rows.h"

namespace millrace {
namespace {

class RowsLayout : public LinearLayout {
 public:
  std::string_view name() const override { return "rows"; }
  bool accepts(DType, int64_t, int64_t, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu;
  }
  size_t bytes(DType, int64_t, int64_t) const override { return 0; }
  void pack(std::span<const WeightView>, std::byte*, ThreadPool&) const override {
    MR_ASSERT(!"rows are read in place");
  }
};

}  // namespace

const LinearLayout& rows_layout() {
  static const RowsLayout layout;
  return layout;
}

}  // namespace millrace
