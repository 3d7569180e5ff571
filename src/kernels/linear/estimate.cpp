#include "kernels/linear/estimate.h"

namespace millrace {
namespace {

// Fitted to whole models on a Neoverse-V1 (docs/cpu-neoverse-v1.md).
constexpr double kOfPlainReads = 0.89;  // bandwidth relative to a loop that only reads
constexpr double kStartUs = 6;          // per call: ramp-up and tail of the memory streams
constexpr double kStartBytes = 100e3;   // smaller weights are probably still in a cache

}  // namespace

double reading_us(const LinearProblem& p, double share, const Hardware& hardware) {
  const double bytes = static_cast<double>(p.n) * static_cast<double>(row_bytes(p.format, p.k));
  return 1e-3 * bytes / (share * kOfPlainReads * hardware.ceilings.read_gbs) + kStartUs * bytes / (bytes + kStartBytes);
}

}  // namespace millrace
