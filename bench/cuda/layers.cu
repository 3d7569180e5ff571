// Decoder layers of a decode step: attention, then the linear layers up to the next layer's qkv, with several choices
// of kernels. Prints microseconds per layer, weights and KV cold, inside a graph, norms shared. A kernel's time among
// others differs from its time alone, since neighbouring kernels may overlap.
//
//   layers [m=1,8,32,64] [depth=1030] [model=8B] [format=bf16|q4_0|q4_k|q8_0]
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "layer_step.cuh"

namespace millrace {
namespace {

constexpr CudaAttentionKind kCluster = CudaAttentionKind::DecodeCluster, kLine = CudaAttentionKind::Decode;
constexpr const char *kRows = "gemv-rows", *kDeep = "wgmma-deep", *kHalf = "wgmma", *kNarrow = "wgmma-narrow",
                     *kPacked = "packed-gemv", *kFew = "packed-few", *kFlat = "packed-flat";
constexpr Way kWays[] = {
    {"cluster", &kCluster, {}},
    {"line", &kLine, {}},
    {"rows", nullptr, {kRows, kRows, kRows, kRows}},
    {"packed", nullptr, {kPacked, kPacked, kPacked, kPacked}},
    {"few", nullptr, {kFew, kFew, kFew, kFew}},
    {"flat", nullptr, {kFlat, kFlat, kFlat, kFlat}},
    {"deep", nullptr, {kDeep, kDeep, kDeep, kDeep}},
    {"deep, half for gate+up", nullptr, {kDeep, kHalf, kDeep, kDeep}},
    {"cluster, rows", &kCluster, {kRows, kRows, kRows, kRows}},
    {"cluster, packed", &kCluster, {kPacked, kPacked, kPacked, kPacked}},
    {"cluster, few", &kCluster, {kFew, kFew, kFew, kFew}},
    {"cluster, flat", &kCluster, {kFlat, kFlat, kFlat, kFlat}},
    {"cluster, deep", &kCluster, {kDeep, kDeep, kDeep, kDeep}},
    {"line, deep", &kLine, {kDeep, kDeep, kDeep, kDeep}},
    {"cluster, half for gate+up", &kCluster, {kDeep, kHalf, kDeep, kDeep}},
    {"cluster, half for qkv", &kCluster, {kDeep, kDeep, kDeep, kHalf}},
    {"cluster, narrow for qkv", &kCluster, {kDeep, kDeep, kDeep, kNarrow}},
    {"cluster, half for o and qkv", &kCluster, {kHalf, kDeep, kDeep, kHalf}},
    {"line, half for qkv", &kLine, {kDeep, kDeep, kDeep, kHalf}},
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  std::vector<int> ms{1, 8, 32, 64};
  int depth = 1030;
  std::string only;
  DType format = DType::BF16;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "m=", 2) == 0) {
      ms.clear();
      for (char* at = argv[i] + 1; at != nullptr; at = std::strchr(at + 1, ',')) ms.push_back(std::atoi(at + 1));
    } else if (std::strncmp(argv[i], "depth=", 6) == 0) {
      depth = std::atoi(argv[i] + 6);
    } else if (std::strncmp(argv[i], "model=", 6) == 0) {
      only = argv[i] + 6;
    } else if (std::strncmp(argv[i], "format=q4_", 10) == 0) {
      format = std::strcmp(argv[i] + 10, "k") == 0 ? DType::Q4_K : DType::Q4_0;
    } else if (std::strcmp(argv[i], "format=q8_0") == 0) {
      format = DType::Q8_0;
    }
  }
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  CudaLimits limits;
  limits.sms = device.multiProcessorCount;
  limits.capability = device.major * 10 + device.minor;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (const Model& model : kModels) {
    if (!only.empty() && only != model.name) continue;
    for (const int m : ms) {
      Step step(model, format, limits, m, depth, stream);
      std::printf("%s, m=%d, depth %d: %.1f us at 4.45 TB/s\n ", model.name, m, depth, step.roof_us());
      for (const Way& way : kWays) {
        const double us = step.us(way);
        if (us > 0) std::printf(" %s %.1f |", way.name, us);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
}
