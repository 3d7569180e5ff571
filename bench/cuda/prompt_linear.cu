// Linear layers of prompts: our full GEMM beside the best of cuBLASLt's proposals, in turns, checked at random places.
//
//   prompt_linear [m=1024,4096] [shapes=qkv-8b,...] [rounds=8]
//
// A turn repeats one of them for some 30 ms on weights that rotate past the second-level cache; medians of the turns
// count, since the card does not keep its clocks. Gate and up: cuBLASLt with the kernel behind it that gates. o and down
// add to the residual stream in f32.
#include <dlfcn.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda_rows.h"
#include "support.cuh"

#ifdef MR_WIDE_KNOBS
extern int wide_group, wide_cluster, wide_skip;
#endif

namespace millrace {
namespace {

enum class Use { Plain, Gated, Residual };
struct Shape {
  const char* name;
  int64_t n, k;
  Use use;
};
constexpr Shape kShapes[] = {
    {"qkv-8b", 6144, 4096, Use::Plain},     {"o", 4096, 4096, Use::Residual},
    {"gateup-8b", 28672, 4096, Use::Gated}, {"down-8b", 4096, 14336, Use::Residual},
    {"qkv-7b", 12288, 4096, Use::Plain},    {"gateup-7b", 22016, 4096, Use::Gated},
    {"down-7b", 4096, 11008, Use::Residual}, {"wide-8b", 28672, 4096, Use::Plain}};

__global__ void fill_normal(__nv_bfloat16* out, size_t n, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    float sum = 0;
    for (uint64_t j = 0; j < 4; ++j) sum += random_float(seed, 4 * i + j, 0.8660254f);
    out[i] = __float2bfloat16(sum * scale);
  }
}

// One output for each warp: places spread over y, the last ones at its end.
__global__ void check_places(const __nv_bfloat16* x, const __nv_bfloat16* w, const void* y, int64_t m, int64_t n, int64_t k,
                             Use use, int times, float* worst) {
  const int lane = threadIdx.x % 32;
  const int64_t id = (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) / 32, columns = use == Use::Gated ? n / 2 : n;
  const bool is_end = id < 64;
  const int64_t token = is_end ? m - 1 - id % 8 : mix(id * 2) % m, column = is_end ? columns - 1 - id / 8 : mix(id * 2 + 1) % columns;
  const auto dot = [&](int64_t row) {
    float sum = 0;
    for (int64_t i = lane; i < k; i += 32) sum += __bfloat162float(x[token * k + i]) * __bfloat162float(w[row * k + i]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
  };
  float want = 0, got = 0;
  if (use == Use::Gated) {
    const float gate = dot(column / 8 * 16 + column % 8), up = dot(column / 8 * 16 + 8 + column % 8);
    want = gate / (1 + expf(-gate)) * up;
  } else {
    want = dot(column) * float(times);
  }
  if (use == Use::Residual) {
    got = static_cast<const float*>(y)[token * columns + column];
  } else {
    got = __bfloat162float(static_cast<const __nv_bfloat16*>(y)[token * columns + column]);
  }
  const float error = fabsf(got - want) / (fabsf(want) + 0.05f);
  if (lane == 0) atomicMax(reinterpret_cast<int*>(worst), __float_as_int(error == error ? error : 1e30f));
}

// What the driver's library says of the card: the clock of the multiprocessors, and the energy that it has taken.
class Card {
 public:
  Card() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == nullptr) return;
    reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"))();
    reinterpret_cast<int (*)(unsigned, void**)>(::dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device_);
    clock_ = reinterpret_cast<Clock>(::dlsym(library, "nvmlDeviceGetClockInfo"));
    energy_ = reinterpret_cast<Energy>(::dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
  }
  double mhz() const {
    unsigned mhz = 0;
    if (clock_ != nullptr) clock_(device_, 1, &mhz);
    return mhz;
  }
  double joules() const {
    unsigned long long mj = 0;
    if (energy_ != nullptr) energy_(device_, &mj);
    return double(mj) * 1e-3;
  }

 private:
  using Clock = int (*)(void*, int, unsigned*);
  using Energy = int (*)(void*, unsigned long long*);
  void* device_ = nullptr;
  Clock clock_ = nullptr;
  Energy energy_ = nullptr;
};

struct Candidate {
  std::string name;
  std::function<bool(const void* weights)> run;
  std::vector<float> times;
  double mhz = 0, joules = 0, watts = 0;
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

class Bench {
 public:
  Bench(std::vector<int> proposals, int rounds, double turn_ms, bool burst)
      : proposals_(std::move(proposals)), rounds_(rounds), turn_ms_(turn_ms), burst_(burst) {
    CHECK(cudaStreamCreate(&stream_));
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    limits_.sms = device.multiProcessorCount;
    limits_.capability = device.major * 10 + device.minor;
    fill_normal<<<2048, 256, 0, stream_>>>(pool_.as<__nv_bfloat16>(), pool_.bytes() / 2, 1, 0.02f);
    fill_normal<<<2048, 256, 0, stream_>>>(x_.as<__nv_bfloat16>(), x_.bytes() / 2, 2, 1.f);
    for (cudaEvent_t* event : {&from_, &to_}) CHECK(cudaEventCreate(event));
    CHECK(cudaStreamSynchronize(stream_));
  }

  // Each of the library's proposals once: for a tracer that knows their names.
  void list(const Shape& s, int64_t m) {
    for (Candidate& c : proposals(s, m)) turn(s, c, 1);
  }

  void measure(const Shape& s, int64_t m, const std::vector<std::string>& variants) {
    const double flops = 2.0 * double(s.n) * double(s.k) * double(m);
    std::vector<Candidate> all;
    const std::vector<Candidate> known = proposals(s, m);
    for (const int i : proposals_) {
      if (i < int(known.size())) all.push_back(known[size_t(i)]);
    }
    if (proposals_.empty()) {
      for (Candidate& c : library(s, m)) all.push_back(c);
    }
    const size_t first = all.size();
    for (const std::string& variant : variants) all.push_back(ours(s, m, variant));
    std::printf("%-9s %5lld ", s.name, (long long)m);
    for (size_t i = first; i < all.size(); ++i) {
      const float worst = check(s, m, all[i]);
      if (!(worst < 0.02f) && all[i].name.find('s') == std::string::npos) std::printf("WRONG by %.3g ", double(worst));
    }
    for (int round = 0; round < rounds_; ++round) {
      for (Candidate& c : all) {
        if (burst_) {
          usleep(20000);
          turn(s, c, 1);
          c.times.push_back(turn(s, c, 2));
        } else {
          sustain(s, c, flops);
        }
      }
    }
    for (Candidate& c : all) {
      const double rate = flops / c.median() * 1e-6, count = rounds_;
      std::printf("| %s %.1f us %.0f ", c.name.c_str(), c.median(), rate);
      if (!burst_) {
        std::printf("%.3f J %.0f W %.0f MHz %.0f%% ", c.joules / count, c.watts / count, c.mhz / count,
                    rate / (c.mhz / count) * 1e8 / (4096.0 * limits_.sms));
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  std::vector<Candidate> proposals(const Shape& s, int64_t m) {
    const int count = cublas_.prepare(s.n, s.k, m, s.use == Use::Residual);
    std::vector<Candidate> proposals;
    for (int i = 0; i < std::min(count, 8); ++i) {
      proposals.push_back({"lt" + std::to_string(i), [this, i, s, m](const void* w) {
                             void* to = s.use == Use::Gated ? gates_.as() : y_.as();
                             if (!cublas_.run(i, w, x_.as(), to, stream_)) return false;
                             if (s.use == Use::Gated) {
                               cuda_gate(to, {DType::BF16, m, s.n / 2, s.n / 2, y_.as<std::byte>()}, stream_);
                             }
                             return true;
                           },
                           {}});
    }
    return proposals;
  }

  // Its own favourite, and the one that is fastest.
  std::vector<Candidate> library(const Shape& s, int64_t m) {
    std::vector<Candidate> proposals = this->proposals(s, m);
    const int times = std::max(1, int(4e3 / (2.0 * double(s.n) * double(s.k) * double(m) / 7e8)));
    size_t best = 0;
    std::vector<float> us;
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < proposals.size(); ++i) {
        const float took = turn(s, proposals[i], times);
        if (round == 0) us.push_back(took);
        us[i] = std::min(us[i], took);
        if (us[i] < us[best]) best = i;
      }
    }
    if (best == 0) return {proposals[0]};
    return {proposals[0], proposals[best]};
  }

  Candidate ours(const Shape& s, int64_t m, const std::string& variant) {
    CudaLinearProblem p;
    p.n = s.n;
    p.k = s.k;
    p.m = m;
    p.gate_up = s.use == Use::Gated;
    p.accumulate = s.use == Use::Residual;
    p.y = s.use == Use::Residual ? DType::F32 : DType::BF16;
    CudaLinearArgs args{x_.as(), p.k, nullptr, nullptr, y_.as(), p.gate_up ? p.n / 2 : p.n};
    return {variant, [this, p, args, variant](const void* w) mutable {
#ifdef MR_WIDE_KNOBS
              const bool ping = std::sscanf(variant.c_str(), "p%d", &wide_group) == 1;
              wide_skip = 0;
              std::sscanf(variant.c_str(), "c%dg%ds%d", &wide_cluster, &wide_group, &wide_skip);
#endif
              args.weights = w;
              if (ping) return wide_ping_kernel().run(p, args, limits_, CudaStep{stream_, true}) == cudaSuccess;
              return wide_wgmma_kernel().run(p, args, limits_, CudaStep{stream_, true}) == cudaSuccess;
            },
            {}};
  }

  // For turn_ms_, of which the first part only brings the card to the clock that it can keep with this work.
  void sustain(const Shape& s, Candidate& c, double flops) {
    constexpr int kParts = 12, kWarm = 5;
    const int times = std::max(1, int(turn_ms_ * 1e3 / kParts / (flops / 6.5e8)));
    const size_t bytes = size_t(s.n * s.k) * 2, copies = std::max<size_t>(1, pool_.bytes() / bytes);
    std::vector<cudaEvent_t> events(kParts + 1);
    for (cudaEvent_t& event : events) CHECK(cudaEventCreate(&event));
    double before = 0, mhz = 0;
    for (int part = 0; part <= kParts; ++part) {
      CHECK(cudaEventRecord(events[size_t(part)], stream_));
      if (part < kParts) {
        for (int i = 0; i < times; ++i) c.run(pool_.as<uint8_t>() + size_t(i) % copies * bytes);
      }
      if (part > 0) CHECK(cudaEventSynchronize(events[size_t(part) - 1]));
      if (part == kWarm + 1) before = card_.joules();
      if (part > kWarm && part < kParts) mhz += card_.mhz() / (kParts - kWarm - 1);
    }
    const double joules = card_.joules() - before;  // of all parts from kWarm on but the last
    CHECK(cudaEventSynchronize(events.back()));
    float all = 0;
    CHECK(cudaEventElapsedTime(&all, events[kWarm], events[kParts - 1]));
    for (int part = kWarm; part < kParts; ++part) {
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, events[size_t(part)], events[size_t(part) + 1]));
      c.times.push_back(ms * 1000 / float(times));
    }
    c.joules += joules / (double(times) * (kParts - kWarm - 1));
    c.watts += joules / (double(all) * 1e-3);
    c.mhz += mhz;
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }

  float turn(const Shape& s, Candidate& c, int times) {
    const size_t bytes = size_t(s.n * s.k) * 2, copies = std::max<size_t>(1, pool_.bytes() / bytes);
    CHECK(cudaEventRecord(from_, stream_));
    for (int i = 0; i < times; ++i) {
      if (!c.run(pool_.as<uint8_t>() + size_t(i) % copies * bytes)) std::printf("did not run: %s\n", c.name.c_str());
    }
    CHECK(cudaEventRecord(to_, stream_));
    CHECK(cudaEventSynchronize(to_));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from_, to_));
    return ms * 1000 / float(times);
  }

  float check(const Shape& s, int64_t m, const Candidate& c) {
    const bool adds = s.use == Use::Residual;
    const int times = adds ? 2 : 1;  // to nothing, and to what the first time left
    CHECK(cudaMemsetAsync(y_.as(), adds ? 0 : 0xff, y_.bytes(), stream_));
    for (int i = 0; i < times; ++i) c.run(pool_.as());
    float worst = 0;
    const DeviceBuffer found(4);
    CHECK(cudaMemsetAsync(found.as(), 0, 4, stream_));
    check_places<<<1024, 256, 0, stream_>>>(x_.as<__nv_bfloat16>(), pool_.as<__nv_bfloat16>(), y_.as(), m, s.n, s.k, s.use,
                                            times, found.as<float>());
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(cudaMemcpy(&worst, found.as(), 4, cudaMemcpyDeviceToHost));
    return worst;
  }

  std::vector<int> proposals_;  // of the library's, or none: its favourite and the fastest
  int rounds_;
  double turn_ms_;
  bool burst_;
  Card card_;
  CudaLimits limits_;
  CublasLt cublas_;
  DeviceBuffer pool_{size_t{700} << 20}, x_{size_t{8192} * 14336 * 2}, y_{size_t{8192} * 14336 * 4},
      gates_{size_t{8192} * 28672 * 2};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t from_, to_;
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
  std::vector<std::string> ms{"512", "1000", "1024", "2048", "4096", "8192"}, shapes, variants{"ours"};
  std::vector<int> proposals;
  int rounds = 2;
  double turn = 600;
  bool list = false, burst = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("m=")) ms = split(argument.substr(2));
    if (argument.starts_with("shapes=")) shapes = split(argument.substr(7));
    if (argument.starts_with("rounds=")) rounds = std::atoi(argument.c_str() + 7);
    if (argument.starts_with("turn=")) turn = std::atof(argument.c_str() + 5);
    if (argument.starts_with("proposals=")) {
      for (const std::string& i : split(argument.substr(10))) proposals.push_back(std::atoi(i.c_str()));
    }
    if (argument == "list") list = true;
    if (argument == "burst") burst = true;
    if (argument.starts_with("variants=")) variants = split(argument.substr(9));
  }
  Bench bench(proposals, rounds, turn, burst);
  for (const std::string& m : ms) {
    for (const Shape& s : kShapes) {
      if (!shapes.empty() && std::find(shapes.begin(), shapes.end(), s.name) == shapes.end()) continue;
      if (list) {
        bench.list(s, std::atoll(m.c_str()));
      } else {
        bench.measure(s, std::atoll(m.c_str()), variants);
      }
    }
  }
}
