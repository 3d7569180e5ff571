// Linear kernels on a GPU: checks all of them, then times them cold beside cuBLASLt.
//
//   linear [check] [time] [quantized] [unpack] [prefill] [profile] [only=NAME] [skip=NAME] [shapes=A,B] [formats=A,B]
//   [m=1,8]
//
// Without arguments: all but unpack, prefill and profile. NAME is a prefix of kernel names. profile runs every chosen
// problem twice, for a profiler.
//
// Cold: weights rotate through copies several times larger than L2, inside a CUDA graph; reports the median of the
// replays. TB/s are the bytes of the weights over the time.
#include "kernels/linear/cuda/launch.h"

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "linear_check.h"
#include "support.cuh"

namespace millrace {
namespace {

struct Shape {
  const char* name;
  int64_t n, k;
};

constexpr Shape kShapes[] = {
    {"o", 4096, 4096},         {"qkv-8b", 6144, 4096},     {"down-7b", 4096, 11008},   {"down-8b", 4096, 14336},
    {"qkv-7b", 12288, 4096},   {"gateup-7b", 22016, 4096}, {"gateup-8b", 28672, 4096}, {"head-7b", 32000, 4096},
    {"head-8b", 128256, 4096}, {"odd", 4104, 4040},
};

struct Format {
  const char* name;
  DType format;
};

constexpr Format kFormats[] = {
    {"BF16", DType::BF16}, {"Q4_0", DType::Q4_0},     {"Q4_1", DType::Q4_1},     {"Q4_K", DType::Q4_K},
    {"Q5_0", DType::Q5_0}, {"Q5_1", DType::Q5_1},     {"Q5_K", DType::Q5_K},     {"Q6_K", DType::Q6_K},
    {"Q8_0", DType::Q8_0}, {"IQ4_NL", DType::IQ4_NL}, {"IQ4_XS", DType::IQ4_XS}, {"MXFP4", DType::MXFP4},
};

struct Choice {
  std::vector<std::string> shapes, formats;
  std::vector<int64_t> ms;

  static bool has(const std::vector<std::string>& list, const std::string& name) {
    return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
  }
  std::vector<int64_t> ms_or(std::vector<int64_t> usual) const { return ms.empty() ? usual : ms; }
};

class Bench {
 public:
  Bench(const CudaLimits& limits, const KernelFilter& filter, const Choice& choice)
      : limits_(limits),
        filter_(filter),
        choice_(choice),
        pool_(size_t{2304} << 20),
        x_(size_t{128} << 20),
        y_(size_t{256} << 20) {
    CHECK(cudaStreamCreate(&stream_));
    fill_random<<<1024, 256, 0, stream_>>>(pool_.as<__nv_bfloat16>(), pool_.bytes() / 2, 1, 0.05f);
    fill_random<<<1024, 256, 0, stream_>>>(x_.as<__nv_bfloat16>(), x_.bytes() / 2, 2, 1.f);
    CHECK(cudaStreamSynchronize(stream_));
  }

  // Includes the norm before it if `normed`.
  double kernel_us(const CudaLinearKernel& kernel, const CudaLinearProblem& p, bool overlap, bool normed = false) {
    const size_t bytes = packed_linear_bytes(p.format, p.n, p.k);
    const int copies = copies_of(bytes);
    CudaLinearArgs args{x_.as(), p.k, nullptr, nullptr, y_.as(), p.gate_up ? p.n / 2 : p.n, nullptr};
    if (normed) args.norm = x_.as<float>() + p.m * p.k;
    return time_cold(launches_of(copies), 9, stream_, [&](int i, cudaStream_t stream) {
      args.weights = pool_.as<uint8_t>() + size_t(i % copies) * bytes;
      return kernel.run(p, args, limits_, CudaStep{stream, overlap}) == cudaSuccess;
    });
  }

  double cublas_us(int64_t n, int64_t k, int64_t m) {
    const size_t bytes = size_t(n * k) * 2;
    const int copies = copies_of(bytes), algorithms = cublas_.prepare(n, k, m);
    double best = -1;
    for (int a = 0; a < algorithms; ++a) {
      const double us = time_cold(launches_of(copies), 5, stream_, [&](int i, cudaStream_t stream) {
        return cublas_.run(a, pool_.as<uint8_t>() + size_t(i % copies) * bytes, x_.as(), y_.as(), stream);
      });
      if (us > 0 && (best < 0 || us < best)) best = us;
    }
    return best;
  }

  void plain_table(const std::vector<int64_t>& ms) {
    std::printf(
        "\nbf16, cold, us (TB/s); o: launched to overlap with the kernel before; ratio: cuBLASLt over our best\n");
    for (const Shape& s : kShapes) {
      if (!Choice::has(choice_.shapes, s.name)) continue;
      for (const int64_t m : choice_.ms_or(ms)) {
        if (std::string(s.name) == "head-8b" && m > 64) continue;
        CudaLinearProblem p;
        p.n = s.n;
        p.k = s.k;
        p.m = m;
        const double cublas = cublas_us(s.n, s.k, m);
        const double tera = double(s.n * s.k) * 2 * 1e-6;
        std::printf("%-9s m=%-4lld cublas %6.1f (%.2f) |", s.name, (long long)m, cublas, tera / cublas);
        double best = 1e30, best_overlap = 1e30;
        for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
          if (!filter_.wants(kernel) || !kernel.can_run(p, limits_) || kernel.name == "rows" ||
              kernel.estimate_us(p, limits_) > 4 * cublas)
            continue;
          const double us = kernel_us(kernel, p, false), over = kernel_us(kernel, p, true);
          if (us > 0) best = std::min(best, us);
          if (over > 0) best_overlap = std::min(best_overlap, over);
          std::printf(" %.*s %.1f o%.1f e%.1f |", int(kernel.name.size()), kernel.name.data(), us, over,
                      kernel.estimate_us(p, limits_));
        }
        std::printf(" best %.1f (%.2f) ratio %.2f o%.2f\n", best, tera / best, cublas / best, cublas / best_overlap);
        std::fflush(stdout);
      }
    }
  }

  void profile() {
    for (const Format& f : kFormats) {
      for (const Shape& s : kShapes) {
        if (!Choice::has(choice_.formats, f.name) || !Choice::has(choice_.shapes, s.name)) continue;
        for (const int64_t m : choice_.ms_or({1})) {
          CudaLinearProblem p;
          p.format = f.format;
          p.n = s.n;
          p.k = s.k;
          p.m = m;
          const CudaLinearArgs args{x_.as(), p.k, pool_.as(), nullptr, y_.as(), p.n, nullptr};
          for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
            if (!filter_.wants(kernel) || !kernel.can_run(p, limits_)) continue;
            for (int i = 0; i < 2; ++i) CHECK(kernel.run(p, args, limits_, CudaStep{stream_, false}));
            CHECK(cudaStreamSynchronize(stream_));
          }
        }
      }
    }
  }

  void unpack_table() {
    std::printf("\nquantized weights written out in 16 bits, cold, us (TB/s of both)\n");
    for (const Format& f : kFormats) {
      if (f.format == DType::BF16 || !Choice::has(choice_.formats, f.name)) continue;
      std::printf("%-6s", f.name);
      for (const Shape& s : kShapes) {
        if (!Choice::has(choice_.shapes, s.name) || size_t(s.n * s.k) * 2 > y_.bytes()) continue;
        const size_t bytes = packed_linear_bytes(f.format, s.n, s.k);
        const int copies = copies_of(bytes);
        const double us = time_cold(launches_of(copies), 9, stream_, [&](int i, cudaStream_t stream) {
          return unpack_linear(f.format, pool_.as<uint8_t>() + size_t(i % copies) * bytes, s.n, s.k, 0, s.n, y_.as(),
                               stream) == cudaSuccess;
        });
        std::printf(" | %s %.1f (%.2f)", s.name, us, (double(bytes) + 2.0 * double(s.n * s.k)) * 1e-6 / us);
      }
      std::printf("\n");
    }
  }

  void quantized_table() {
    std::printf(
        "\nquantized, cold, us (TB/s of packed bytes), launched to overlap; e: estimate, n: with the norm in front\n");
    for (const Format& f : kFormats) {
      for (const Shape& s : kShapes) {
        const std::string name = s.name;
        const bool common = f.format == DType::Q4_0 || f.format == DType::Q4_K || f.format == DType::Q8_0;
        if (!Choice::has(choice_.formats, f.name) || !Choice::has(choice_.shapes, name)) continue;
        if (f.format == DType::BF16 || name == "odd" || name == "head-7b" ||
            (!common && name != "o" && name != "gateup-8b"))
          continue;
        std::printf("%-6s %-9s", f.name, s.name);
        for (const int64_t m : choice_.ms_or({1, 4, 8, 16, 32, 64})) {
          CudaLinearProblem p;
          p.format = f.format;
          p.n = s.n;
          p.k = s.k;
          p.m = m;
          const double tera = double(packed_linear_bytes(f.format, s.n, s.k)) * 1e-6;
          std::printf(" | m=%lld", (long long)m);
          for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
            if (!filter_.wants(kernel) || !kernel.can_run(p, limits_)) continue;
            if (kernel.name == "packed-mma" && m > 64) continue;  // far too slow
            const double us = kernel_us(kernel, p, true);
            std::printf(" %.*s %.1f (%.2f) e%.1f", int(kernel.name.size()), kernel.name.data(), us, tera / us,
                        kernel.estimate_us(p, limits_));
            if (kernel.takes_norm != nullptr && kernel.takes_norm(p, limits_)) {
              std::printf(" n%.1f", kernel_us(kernel, p, true, true));
            }
          }
        }
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }

 private:
  int copies_of(size_t bytes) const { return int(std::clamp<size_t>((size_t{600} << 20) / bytes, 2, 64)); }
  static int launches_of(int copies) { return std::max(16, copies); }

  CudaLimits limits_;
  KernelFilter filter_;
  Choice choice_;
  CublasLt cublas_;
  DeviceBuffer pool_, x_, y_;
  cudaStream_t stream_ = nullptr;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out(1);
  for (const char c : list) {
    if (c == ',') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  KernelFilter filter;
  Choice choice;
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("only=")) {
      filter.only = argument.substr(5);
    } else if (argument.starts_with("skip=")) {
      filter.skip = argument.substr(5);
    } else if (argument.starts_with("shapes=")) {
      choice.shapes = split(argument.substr(7));
    } else if (argument.starts_with("formats=")) {
      choice.formats = split(argument.substr(8));
    } else if (argument.starts_with("m=")) {
      for (const std::string& m : split(argument.substr(2))) choice.ms.push_back(std::atoll(m.c_str()));
    } else {
      parts.push_back(argument);
    }
  }
  if (parts.empty()) parts = {"check", "time", "quantized"};
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  CudaLimits limits;
  limits.sms = device.multiProcessorCount;
  limits.capability = device.major * 10 + device.minor;
  std::printf("%s, %d multiprocessors, sm_%d\n", device.name, limits.sms, limits.capability);
  int failures = 0;
  for (const std::string& part : parts) {
    if (part == "check") failures += check_linear(limits, filter, static_cast<uint64_t>(std::time(nullptr)));
    if (part == "time") Bench(limits, filter, choice).plain_table({1, 4, 8, 16, 32, 64, 128, 256});
    if (part == "quantized") Bench(limits, filter, choice).quantized_table();
    if (part == "unpack") Bench(limits, filter, choice).unpack_table();
    if (part == "profile") Bench(limits, filter, choice).profile();
    if (part == "prefill") Bench(limits, filter, choice).plain_table({512, 1024, 2048, 4096});
  }
  return failures == 0 ? 0 : 1;
}
