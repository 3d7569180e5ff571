#include "hardware/device.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "hardware/cuda_device.h"
#include "hardware/detect.h"
#include "hardware/energy.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

class HostUploader final : public Uploader {
 public:
  size_t slot_bytes() const override { return buffer_.size(); }
  std::byte* slot() override { return buffer_.data(); }
  void send(std::byte* to, size_t bytes) override { host_memory().write(to, buffer_.data(), bytes); }
  std::byte* scratch() override { return scratch_.data(); }
  void* queue() const override { return nullptr; }

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(16 << 20), scratch_ = buffer_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(Hardware hardware) { hardware_ = std::move(hardware); }
  int64_t available_memory() const override { return millrace::available_memory(); }
  std::optional<double> joules() const override { return read_package_joules(); }
  Memory& memory() override { return host_memory(); }
  Memory& staging() override { return host_memory(); }
  std::unique_ptr<Uploader> new_uploader() override { return std::make_unique<HostUploader>(); }
  void enqueue_write(std::byte* to, const std::byte* from, size_t bytes) override {
    host_memory().write(to, from, bytes);
  }
  void enqueue_read(std::byte* to, const std::byte* from, size_t bytes) override {
    host_memory().read(to, from, bytes);
  }
  void clear(std::byte* data, size_t bytes) override { std::fill_n(data, bytes, std::byte{0}); }
  void finish() override {}
};

}  // namespace

void upload_bytes(const std::byte* from, std::byte* to, size_t bytes, Uploader& uploader, ThreadPool& pool) {
  for (size_t done = 0; done < bytes;) {
    const size_t count = std::min(bytes - done, uploader.slot_bytes());
    std::byte* slot = uploader.slot();
    fill_slot(slot, from + done, count, pool);
    uploader.send(to + done, count);
    done += count;
  }
}

void fill_slot(std::byte* slot, const std::byte* from, size_t bytes, ThreadPool& pool) {
  pool.parallel_for(static_cast<int64_t>(bytes), 1 << 19,
                    [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, slot + begin); });
}

std::unique_ptr<Device> host_device(Hardware hardware) { return std::make_unique<HostDevice>(std::move(hardware)); }

std::unique_ptr<Device> open_device(const DeviceOptions& o) {
  const auto cpu = [&] { return host_device(this_machine(o.threads, o.measure, o.isa)); };
  if (o.choice.kind == DeviceChoice::Cpu) return cpu();
  const std::string problem = cuda_problem(o.choice);
  try {
    if (problem.empty()) return open_cuda_device(o.choice.cuda_index(), o.measure);
  } catch (const Error& error) {
    if (o.choice.kind == DeviceChoice::Cuda) throw;
    log().warn("device: cpu, since the GPU cannot be opened ({})", error.what());
    return cpu();
  }
  if (o.choice.kind == DeviceChoice::Cuda)
    fail(ErrorKind::Unsupported, "--device {}: {}", to_string(o.choice), problem);
  log().info("device: cpu ({})", problem);
  return cpu();
}

}  // namespace millrace
