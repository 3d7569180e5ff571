// When the blocks of a decode step's kernels start, receive their first bytes and end, in a graph of eight layers.
// Built with MILLRACE_STAMPS by timeline.sh, read by timeline.py.
//
//   timeline FOLDER [model=8B] [m=8] [depth=1030]: writes FOLDER/MODEL-M-DEPTH.txt (blocks of each launch) and .bin
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "kernels/cuda/stamps.cuh"
#include "../layer_step.cuh"

namespace millrace {
namespace {

constexpr size_t kMostBlocks = 40000;
std::vector<unsigned> g_launches;  // blocks per launch
uint32_t* g_stamps = nullptr;
size_t g_blocks = 0;

void record(const Step& step, const Way& way, cudaStream_t stream) {
  const CudaAttentionPlan plan = step.plan_of(way);
  if (!plan.can_run()) std::exit(1);
  std::printf("attention: %d blocks of %d threads in clusters of %d\n", plan.grid, plan.threads, plan.cluster);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLayers; ++i) {
    if (!step.run(way, plan, i)) std::exit(1);
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 5; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
}

}  // namespace

Stamps stamps_of_launch(unsigned blocks) {
  if (g_blocks + blocks > kMostBlocks) return {};
  g_launches.push_back(blocks);
  g_blocks += blocks;
  return {g_stamps + (g_blocks - blocks) * Stamps::kEach};
}

}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  std::string name = "8B";
  int m = 8, depth = 1030;
  for (int i = 2; i < argc; ++i) {
    if (std::strncmp(argv[i], "model=", 6) == 0) name = argv[i] + 6;
    if (std::strncmp(argv[i], "m=", 2) == 0) m = std::atoi(argv[i] + 2);
    if (std::strncmp(argv[i], "depth=", 6) == 0) depth = std::atoi(argv[i] + 6);
  }
  const CudaAttentionKind cluster = CudaAttentionKind::DecodeCluster;
  const Way one{"", &cluster, {"gemv-rows", "gemv-rows", "gemv-rows", "gemv-rows"}};
  const Way several{"", &cluster, {"wgmma-deep", "wgmma", "wgmma-deep", "wgmma-deep"}};
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const DeviceBuffer stamps(kMostBlocks * Stamps::kEach * 4);
  CHECK(cudaMemset(stamps.as(), 0, stamps.bytes()));
  g_stamps = stamps.as<uint32_t>();
  for (const Model& model : kModels) {
    if (name == model.name)
      record(Step(model, DType::BF16, CudaLimits{}, m, depth, stream), m == 1 ? one : several, stream);
  }
  std::vector<uint32_t> host(g_blocks * Stamps::kEach);
  CHECK(cudaMemcpy(host.data(), stamps.as(), host.size() * 4, cudaMemcpyDeviceToHost));
  const std::string path = std::string(argv[1]) + "/" + name + "-" + std::to_string(m) + "-" + std::to_string(depth);
  std::ofstream text(path + ".txt"), data(path + ".bin", std::ios::binary);
  for (const unsigned blocks : g_launches) text << blocks << '\n';
  data.write(reinterpret_cast<const char*>(host.data()), static_cast<std::streamsize>(host.size() * 4));
}
