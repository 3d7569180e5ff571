#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "hardware/cuda/ceilings.h"
#include "hardware/cuda/check.h"
#include "hardware/cuda/energy.h"
#include "hardware/cuda/memory.h"
#include "hardware/cuda/uploader.h"
#include "hardware/cuda_device.h"
#include "hardware/detect.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

constexpr int kOldestArchitecture = 80;  // the first with bf16 and asynchronous copies to shared memory
#ifdef MILLRACE_HOPPER_CODE
constexpr bool kHopperCode = true;
#else
constexpr bool kHopperCode = false;
#endif

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, index), "reading its attributes");
  return value;
}

int architecture(int index) {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) + attribute(cudaDevAttrComputeCapabilityMinor, index);
}

Hardware describe_gpu(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "reading its properties");
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "reading the driver's version");
  Hardware hardware;
  hardware.device = DeviceKind::Cuda;
  hardware.name = properties.name;
  hardware.cuda_index = index;
  hardware.architecture = architecture(index);
  hardware.driver = driver;
  hardware.cores = properties.multiProcessorCount;
  hardware.l1_bytes = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  hardware.l2_bytes = properties.l2CacheSize;
  hardware.l3_bytes = 0;
  hardware.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  hardware.id = hardware_id(fmt::format("{} {}sm cuda{}", hardware.name, hardware.cores, driver));
  return hardware;
}

#if CUDART_VERSION >= 13000
constexpr auto graph_edges = cudaGraphGetEdges;
#else
constexpr auto graph_edges = cudaGraphGetEdges_v2;
#endif

class CudaRecording final : public Recording {
 public:
  CudaRecording(int device, cudaGraphExec_t graph, cudaStream_t stream)
      : device_(device), graph_(graph), stream_(stream) {}
  ~CudaRecording() override {
    cudaSetDevice(device_);
    cudaGraphExecDestroy(graph_);
  }
  void replay() override {
    use_cuda_device(device_);
    check_cuda(cudaGraphLaunch(graph_, stream_), "replaying a step");
  }

 private:
  int device_;
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, bool measure) : index_(index), memory_(index), pinned_(index) {
    check_cuda(cudaSetDevice(index), "opening it");  // creates the context, so that its errors show here
    hardware_ = describe_gpu(index);
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    memory_.copy_in_order_of(stream_);
    for (cudaEvent_t& mark : marks_)
      check_cuda(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "making an event");
    hardware_.ceilings = guess_gpu_ceilings(hardware_);
    find_ceilings(measure);
  }
  ~CudaDevice() override {
    cudaSetDevice(index_);
    for (const cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    cudaStreamDestroy(stream_);
  }

  void use_on_this_thread() override { use_cuda_device(index_); }
  int64_t available_memory() const override {
    use_cuda_device(index_);
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for its free memory");
    return std::max<int64_t>(0, static_cast<int64_t>(free) - kHeldBack);
  }
  std::optional<double> joules() const override { return read_gpu_joules(index_); }
  Memory& memory() override { return memory_; }
  Memory& staging() override { return pinned_; }
  void* queue() const override { return stream_; }
  std::unique_ptr<Uploader> new_uploader() override {
    return std::make_unique<CudaUploader>(index_, memory_, pinned_, stream_);
  }

  void enqueue_write(std::byte* to, const std::byte* from, size_t bytes) override {
    use_on_this_thread();
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying to it");
  }
  void enqueue_read(std::byte* to, const std::byte* from, size_t bytes) override {
    use_on_this_thread();
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copying from it");
  }
  void clear(std::byte* data, size_t bytes) override {
    use_on_this_thread();
    if (bytes > 0) check_cuda(cudaMemsetAsync(data, 0, bytes, stream_), "clearing memory");
  }
  void finish() override {
    use_on_this_thread();
    check_cuda(cudaStreamSynchronize(stream_), "running a step");
    check_cuda(cudaGetLastError(), "launching a kernel");
  }
  void mark(int which) override {
    use_on_this_thread();
    check_cuda(cudaEventRecord(marks_[which], stream_), "marking the end of a step");
  }
  void wait_for(int which) override {
    use_on_this_thread();
    check_cuda(cudaEventSynchronize(marks_[which]), "running a step");
    check_cuda(cudaGetLastError(), "launching a kernel");
  }

  // Fails if an earlier launch failed: the recording would lack that kernel.
  bool begin_recording() override {
    use_on_this_thread();
    check_cuda(cudaGetLastError(), "launching a kernel");
    const bool begun = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (!begun) cudaGetLastError();
    return begun;
  }
  std::unique_ptr<Recording> end_recording() override {
    use_on_this_thread();
    cudaGraph_t graph = nullptr;
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> recorded(graph, cudaGraphDestroy);
    check_cuda(launched, "launching a kernel");
    check_cuda(ended, "recording a step");
    log_edges(graph);
    cudaGraphExec_t executable = nullptr;
    cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    // Upload now: it allocates device memory, and the first replay would fail without it.
    if (status == cudaSuccess) status = cudaGraphUpload(executable, stream_);
    if (status != cudaSuccess && executable != nullptr) cudaGraphExecDestroy(executable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(status, "preparing a recorded step");
    return std::make_unique<CudaRecording>(index_, executable, stream_);
  }
  void drop_recording() noexcept override {
    cudaSetDevice(index_);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }

 private:
  static constexpr int64_t kHeldBack = 256 << 20;  // for recorded steps and for the libraries' own allocations

  // Logs how many kernels of a recorded step start before their predecessor ends.
  static void log_edges(cudaGraph_t graph) {
    if (!log().should_log(spdlog::level::debug)) return;
    size_t nodes = 0, count = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    graph_edges(graph, nullptr, nullptr, nullptr, &count);
    std::vector<cudaGraphNode_t> from(count), to(count);
    std::vector<cudaGraphEdgeData> edges(count);
    graph_edges(graph, from.data(), to.data(), edges.data(), &count);
    const auto early = std::count_if(edges.begin(), edges.end(), [](const cudaGraphEdgeData& edge) {
      return edge.type == cudaGraphDependencyTypeProgrammatic;
    });
    log().debug("recorded {} kernels and copies, {} of which start before their predecessor ends", nodes, early);
  }

  void find_ceilings(bool measure) {
    const auto file = kept_ceilings_file(hardware_.id);
    if (auto kept = load_ceilings(file)) {
      hardware_.ceilings = std::move(*kept);
    } else if (measure) {
      measure_ceilings(file);
    }
  }

  // On a nearly full GPU the measurement runs out of memory; the guesses stay.
  void measure_ceilings(const std::filesystem::path& file) {
    try {
      hardware_.ceilings = measure_gpu_ceilings(hardware_, stream_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::OutOfMemory) throw;
      return log().warn("the GPU's peak rates are guesses: {}", error.what());
    }
    try {
      save_ceilings(file, hardware_.ceilings);
    } catch (const Error& error) {
      log().warn("cannot save the measured peak rates: {}", error.what());
    }
  }

  int index_;
  CudaMemory memory_;
  PinnedMemory pinned_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t marks_[kStepsAtOnce] = {};
};

}  // namespace

std::string cuda_problem(const DeviceChoice& choice) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
    return fmt::format("no usable NVIDIA GPU ({})", cudaGetErrorString(status));
  }
  if (std::string problem = cuda_index_problem(choice.cuda_index(), count); !problem.empty()) return problem;
  try {
    const int found = architecture(choice.cuda_index());
    if (found < kOldestArchitecture)
      return fmt::format("the GPU's compute capability is {}.{}; at least 8.0 is needed", found / 10, found % 10);
    if (found == 90 && !kHopperCode) return "this build has no code for Hopper: its CUDA architectures lack 90a";
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<std::string> names;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index), "reading its properties");
    names.emplace_back(properties.name);
  }
  return names;
}

std::unique_ptr<Device> open_cuda_device(int index, bool measure) {
  return std::make_unique<CudaDevice>(index, measure);
}

}  // namespace millrace
