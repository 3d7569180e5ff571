// Compares our linear kernels with cuBLASLt on 16-bit layers and held-out shapes. Times every kernel that can run a
// problem, and the best of the library's proposals, with cold weights, interleaved. Our launches overlap as in a step;
// the library's cannot. Prints a Markdown table of the kernels that an untuned plan takes; all times go to stderr.
//
//   against [m=1,8] [f16]
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "kernels/linear/cuda/launch.h"
#include "support.cuh"

namespace millrace {
namespace {

constexpr const char* kLibrary = "cuBLASLt";

struct Shape {
  const char* name;
  int64_t n, k;
};
constexpr Shape kShapes[] = {
    {"8B qkv", 6144, 4096},          {"o", 4096, 4096},
    {"8B gate and up", 28672, 4096}, {"8B down", 4096, 14336},
    {"7B qkv", 12288, 4096},         {"7B gate and up", 22016, 4096},
    {"7B down", 4096, 11008},        {"7B head", 32000, 4096},
    {"1B qkv", 3072, 2048},          {"1B o", 2048, 2048},
    {"1B gate and up", 16384, 2048}, {"1B down", 2048, 8192},
    {"held out", 4000, 4096},        {"held out", 4104, 2568},
    {"held out", 6152, 3080},        {"held out", 1000, 5000},
    {"held out", 11008, 4104},       {"held out", 5000, 5128},
    {"held out", 2568, 9992},        {"held out", 13824, 5120},
    {"held out", 9000, 1544},
};

// As CublasLtLinear has it in kernels/linear/cuda/cublaslt.cpp.
double library_estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const double elements = double(p.n) * double(p.k), m = double(p.m);
  const double streamed = 2 * elements * (1 + 0.0008 * m) / (0.97 * limits.bytes_per_us);
  const double multiplied = 2 * elements * m / (0.95 * limits.flops_per_us);
  const double split = p.n < 3072 ? double(p.k) / 6000 : 0;
  return (3.5 + split + std::max(streamed, multiplied)) * (p.m <= 64 ? 1.03 : 1);
}

struct Times {
  std::string best_name, taken_name;
  double best = 1e30, taken = 1e30, library = 1e30;
};

struct Candidate {
  std::string name;
  Recorded launches;
};

void take_turns(std::vector<Candidate>& all, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    for (Candidate& one : all) one.launches.replay();
  }
}

class Comparison {
 public:
  explicit Comparison(const CudaLimits& limits, bool half)
      : limits_(limits), half_(half), pool_(size_t{1200} << 20), x_(size_t{16} << 20), y_(size_t{16} << 20) {
    CHECK(cudaStreamCreate(&stream_));
    fill(pool_, 1, 0.05f);
    fill(x_, 2, 1.f);
    CHECK(cudaStreamSynchronize(stream_));
  }

  Times compare(const Shape& s, int64_t m) {
    const DType type = half_ ? DType::F16 : DType::BF16;
    CudaLinearProblem p{type, type, type, s.n, s.k, m, false, false};
    const size_t bytes = packed_linear_bytes(type, s.n, s.k);
    const int copies = int(std::clamp<size_t>((size_t{600} << 20) / bytes, 2, 48)), launches = std::max(16, copies);
    std::vector<Candidate> ours;
    std::string taken = kLibrary;
    double least = p.n % 8 == 0 ? library_estimate_us(p, limits_) : 1e30;
    for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
      if (kernel.name == "rows" || kernel.name == "wgmma-double" || !kernel.can_run(p, limits_)) continue;
      const double estimate = kernel.estimate_us(p, limits_);
      if (estimate < least) least = estimate, taken = kernel.name;
      Recorded one(launches, stream_, [&](int i, cudaStream_t stream) {
        CudaLinearArgs args{x_.as(), p.k, pool_.as<uint8_t>() + size_t(i % copies) * bytes, nullptr, y_.as(), p.n};
        return kernel.run(p, args, limits_, CudaStep{stream, true}) == cudaSuccess;
      });
      if (one.good()) ours.push_back({std::string(kernel.name), std::move(one)});
    }
    std::vector<Candidate> theirs = proposals(s, m, bytes, copies, launches);
    const size_t count = ours.size();
    for (Candidate& one : theirs) ours.push_back(std::move(one));
    take_turns(ours, 9);
    return times_of(ours, count, taken);
  }

 private:
  void fill(const DeviceBuffer& buffer, uint64_t seed, float scale) {
    if (half_) {
      fill_random<<<1024, 256, 0, stream_>>>(buffer.as<__half>(), buffer.bytes() / 2, seed, scale);
    } else {
      fill_random<<<1024, 256, 0, stream_>>>(buffer.as<__nv_bfloat16>(), buffer.bytes() / 2, seed, scale);
    }
  }

  // The library's best three in a short trial.
  std::vector<Candidate> proposals(const Shape& s, int64_t m, size_t bytes, int copies, int launches) {
    std::vector<Candidate> all;
    const int algorithms = cublas_.prepare(s.n, s.k, m, half_);
    for (int a = 0; a < algorithms; ++a) {
      Recorded one(launches, stream_, [&](int i, cudaStream_t stream) {
        return cublas_.run(a, pool_.as<uint8_t>() + size_t(i % copies) * bytes, x_.as(), y_.as(), stream);
      });
      if (one.good()) all.push_back({"cublaslt " + std::to_string(a), std::move(one)});
    }
    take_turns(all, 3);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.launches.us() < b.launches.us(); });
    while (all.size() > 3) all.pop_back();
    return all;
  }

  static Times times_of(const std::vector<Candidate>& all, size_t own, const std::string& taken) {
    Times t;
    t.taken_name = taken;
    for (size_t i = 0; i < all.size(); ++i) {
      const double us = all[i].launches.us();
      std::fprintf(stderr, " %s %.1f", all[i].name.c_str(), us);
      if (i >= own) {
        t.library = std::min(t.library, us);
      } else if (us < t.best) {
        t.best = us, t.best_name = all[i].name;
      }
      if (all[i].name == taken) t.taken = us;
    }
    if (taken == kLibrary) t.taken = t.library;
    return t;
  }

  CudaLimits limits_;
  bool half_;
  DeviceBuffer pool_, x_, y_;
  CublasLt cublas_;
  cudaStream_t stream_ = nullptr;
};

// Minimum and median speed-up of the plan over the library.
void print_summary(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto slow = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r < 0.97; });
  std::printf("\n%zu problems: %.2fx at least, %.2fx in the middle, %ld more than 3 %% slower than cuBLASLt\n",
              ratios.size(), ratios.front(), ratios[ratios.size() / 2], long(slow));
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  std::vector<int64_t> ms{1, 3, 5, 8, 13, 16, 32, 48, 64};
  bool half = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "f16") == 0) half = true;
    if (std::strncmp(argv[i], "m=", 2) != 0) continue;
    ms.clear();
    for (char* at = argv[i] + 1; at != nullptr; at = std::strchr(at + 1, ',')) ms.push_back(std::atoll(at + 1));
  }
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  CudaLimits limits;
  limits.sms = device.multiProcessorCount;
  limits.capability = device.major * 10 + device.minor;
  std::printf(
      "%s, %s; microseconds of what is taken, and cuBLASLt's time over it (=: it is cuBLASLt)\n\n| layer [N, K] |",
      device.name, half ? "f16" : "bf16");
  for (const int64_t m : ms) std::printf(" M = %lld |", (long long)m);
  std::printf("\n|---|");
  for (size_t i = 0; i < ms.size(); ++i) std::printf("---|");
  std::vector<double> ratios;
  Comparison comparison(limits, half);
  for (const Shape& s : kShapes) {
    std::printf("\n| %s [%lld, %lld] |", s.name, (long long)s.n, (long long)s.k);
    for (const int64_t m : ms) {
      std::fprintf(stderr, "%s [%lld, %lld] m=%lld:", s.name, (long long)s.n, (long long)s.k, (long long)m);
      const Times t = comparison.compare(s, m);
      std::fprintf(stderr, " | taken %s\n", t.taken_name.c_str());
      ratios.push_back(t.library / t.taken);
      if (t.taken_name == kLibrary) {
        std::printf(" %.1f = |", t.taken);
      } else {
        std::printf(" %.1f %.2fx |", t.taken, t.library / t.taken);
      }
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  print_summary(ratios);
}
