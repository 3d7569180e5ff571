// millrace doctor: the machine, its peak rates, and what runs on it.
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_id.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/checks.h"
#include "cli/print_json.h"
#include "cli/verb.h"
#include "engine/memory_plan.h"
#include "hardware/describe.h"
#include "hardware/detect.h"
#include "hardware/device.h"
#include "hardware/load.h"
#include "hardware/roofline.h"
#include "hardware/this_machine.h"
#include "kernels/kernel_set.h"
#include "models/model.h"

namespace millrace {
namespace {

struct DoctorOptions {
  int threads = 0;
  std::string svg;
  bool json = false, again = false;
};

template <class Op>
std::vector<std::string> names(const KernelList<Op>& kernels) {
  std::vector<std::string> all;
  for (const auto* kernel : kernels) all.emplace_back(kernel->name());
  return all;
}

// The GPU, or the reason why it cannot be used. A full GPU must not keep doctor from describing the machine.
struct Gpu {
  std::string problem = cuda_problem(DeviceChoice::Cuda);
  std::unique_ptr<Device> device;

  explicit Gpu(int threads) {
    if (!problem.empty()) return;
    try {
      device = open_device({DeviceChoice::Cuda, threads, /*measure=*/true});
    } catch (const Error& error) {
      problem = error.what();
    }
  }
};

nlohmann::json to_json(const Hardware& hardware, const Gpu& gpu, double others) {
  const auto& kernels = cpu_kernels();
  std::vector<std::string> supported, levels;
  for (const auto& architecture : architectures()) supported.emplace_back(architecture.name);
  for (const auto& level : isa_levels()) levels.emplace_back(level.name);
  nlohmann::json devices = {"cpu"}, gpu_kernels = nlohmann::json::object();
  if (gpu.device != nullptr) {
    devices.push_back("cuda");
    for (size_t i = 1; i < cuda_devices().size(); ++i) devices.push_back(fmt::format("cuda:{}", i));
    gpu_kernels = {{"linear", names(cuda_kernels().of<LinearOp>())},
                   {"attention", names(cuda_kernels().of<AttentionOp>())}};
  }
  return {{"version", version()},
          {"build", build_id()},
          {"hardware", describe(hardware)},
          {"devices", devices},
          {"isa_levels", levels},
          {"available_memory", available_memory()},
          {"others_cpu_share", others},
          {"cache", environment().cache.string()},
          {"architectures", supported},
          {"kernels", {{"linear", names(kernels.of<LinearOp>())}, {"attention", names(kernels.of<AttentionOp>())}}},
          {"gpu", gpu.device != nullptr ? describe(gpu.device->hardware()) : nlohmann::json()},
          {"gpu_problem", gpu.problem},
          {"gpu_libraries", gpu.device != nullptr ? cuda_libraries() : ""},
          {"gpu_kernels", gpu_kernels}};
}

void print_gpu(const Device& gpu) {
  const Hardware& h = gpu.hardware();
  fmt::print("gpu       {}: {} multiprocessors, compute capability {}.{}, driver for CUDA {}.{}\n", h.name, h.cores,
             h.architecture / 10, h.architecture % 10, h.driver / 1000, h.driver % 1000 / 10);
  fmt::print("          {}, {} available, L2 {}\n", human_bytes(h.memory_bytes), human_bytes(gpu.available_memory()),
             human_bytes(h.l2_bytes));
  fmt::print("          reads {:.0f} GB/s, bf16 {:.0f} TFLOP/s, f32 {:.0f} TFLOP/s ({})\n", h.ceilings.read_gbs,
             h.ceilings.bf16_gflops / 1e3, h.ceilings.f32_gflops / 1e3, h.ceilings.measured ? "measured" : "guessed");
  fmt::print("          {}\n", cuda_libraries());
  const auto all = cuda_devices();
  for (size_t i = 1; i < all.size(); ++i) fmt::print("          cuda:{} {}\n", i, all[i]);
}

void print(const Hardware& h, const Gpu& gpu, double others) {
  fmt::print("millrace {} (build {})\n\n", version(), build_id());
  fmt::print("machine   {}: {} cores, {} threads used, {}\n", h.name, h.cores, h.threads, to_string(h.isa));
  fmt::print("caches    L1 {}, L2 {}, L3 {}\n", human_bytes(h.l1_bytes), human_bytes(h.l2_bytes),
             human_bytes(h.l3_bytes));
  fmt::print("memory    {}, {} available\n", human_bytes(h.memory_bytes), human_bytes(available_memory()));
  if (others > kBusyShare) fmt::print("load      {}\n", busy_text(others));
  if (gpu.device != nullptr) {
    print_gpu(*gpu.device);
  } else {
    fmt::print("devices   cpu; {}\n", gpu.problem);
  }
  std::string levels, supported;
  for (const auto& level : isa_levels()) levels += fmt::format("{}{}", levels.empty() ? "" : ", ", level.name);
  for (const auto& a : architectures()) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", a.name);
  fmt::print("--isa     {}\n", levels);
  fmt::print("models    {}\n", supported);
  fmt::print("cache     {}\n\n", environment().cache.string());
  fmt::print("{}", roofline_text(h));
}

void run(const DoctorOptions& o) {
  const LoadMeter load = LoadMeter::with_look_ahead();
  const Hardware hardware = o.again ? measured_again(o.threads) : this_machine(o.threads, /*measure=*/true);
  const double others = load.others();
  const Gpu gpu(o.threads);
  if (!o.svg.empty()) {
    std::ofstream out(o.svg);
    out << roofline_svg(hardware);
    out.close();
    if (!out) fail_errno(o.svg);
  }
  if (o.json) {
    print_json(to_json(hardware, gpu, others));
  } else {
    print(hardware, gpu, others);
  }
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto* verb = app.add_subcommand("doctor", "Show the machine, its peak rates, and what runs on it");
  auto o = std::make_shared<DoctorOptions>();
  verb->add_option("-t,--threads", o->threads, "CPU threads to measure with; 0: one per usable core")
      ->check(whole_number(0, 1024));
  verb->add_option("--svg", o->svg, "write the roofline picture to this file");
  verb->add_flag("--again", o->again, "measure the CPU's peak rates again instead of reading the kept ones");
  verb->add_flag("--json", o->json, "one JSON object on stdout and nothing else");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
