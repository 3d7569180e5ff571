// One device as the engine uses it: its memory, the queue that its kernels run on, and steps that are recorded once and
// replayed. On the CPU all of it is plain memory and immediate work.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "hardware/device_choice.h"
#include "hardware/hardware.h"
#include "tensor/memory.h"

namespace millrace {

// Fills a device's memory through a few pinned buffers, so that packing on the host and copying overlap.
class Uploader {
 public:
  virtual ~Uploader() = default;
  virtual size_t slot_bytes() const = 0;
  virtual std::byte* slot() = 0;                       // a buffer to fill; waits until one is free
  virtual void send(std::byte* to, size_t bytes) = 0;  // what slot() returned last; enqueued
  virtual std::byte* scratch() = 0;  // slot_bytes() in the device's memory, to send to and to pack from
  virtual void* queue() const = 0;
};

// Copies `bytes` of the host's memory, cut into as many slots as it takes; threads of the pool fill them.
void upload_bytes(const std::byte* from, std::byte* to, size_t bytes, Uploader& uploader, ThreadPool& pool);
void fill_slot(std::byte* slot, const std::byte* from, size_t bytes, ThreadPool& pool);

// A sequence of kernels that replays without the host launching each of them.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;

  const Hardware& hardware() const { return hardware_; }
  bool is_host() const { return hardware_.device == DeviceKind::Cpu; }
  virtual int64_t available_memory() const = 0;  // that can still be allocated now

  virtual Memory& memory() = 0;                    // weights, KV cache and activations live here
  virtual Memory& staging() = 0;                   // on the host, copied at full speed; kernels reach it
  virtual void* queue() const { return nullptr; }  // cudaStream_t

  // Makes this device the calling thread's current one. Launches on queue() fail on a thread whose current device is
  // another. All other calls of a Device, its memories and its uploaders do it themselves.
  virtual void use_on_this_thread() {}
  virtual std::unique_ptr<Uploader> new_uploader() = 0;

  // In the order of the queue, after what was enqueued before; host addresses are from staging().
  virtual void enqueue_write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void enqueue_read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void clear(std::byte* data, size_t bytes) = 0;  // to zero; enqueued
  virtual void finish() = 0;                              // waits for all of it; throws where the device failed

  // Places in the queue that can be waited for while later work goes on, one for each step that may be under way: all
  // that was enqueued before mark(i) is done when wait_for(i) returns. Throws where the device failed.
  static constexpr int kStepsAtOnce = 2;
  virtual void mark(int) {}
  virtual void wait_for(int) {}

  // What is enqueued between the two is recorded rather than run. Null: the device cannot, or has no memory left for
  // it.
  virtual bool begin_recording() { return false; }
  virtual std::unique_ptr<Recording> end_recording() { return nullptr; }
  virtual void drop_recording() noexcept {}  // instead of its end, where what was to be recorded failed

 protected:
  Device() = default;
  Hardware hardware_;
};

struct DeviceOptions {
  DeviceChoice choice = DeviceChoice::Cpu;
  int threads = 0;       // of the CPU; 0: one per usable core
  bool measure = false;  // the device's ceilings, if they are not known yet
  IsaSet isa = detect_isa();
};

// Auto takes the first GPU if this build can use it, else the CPU, and logs the reason. Cuda throws where the device is
// missing or unusable.
std::unique_ptr<Device> open_device(const DeviceOptions& options);

// The CPU as a device, with what is known of it.
std::unique_ptr<Device> host_device(Hardware hardware);

// Why the chosen CUDA device cannot be used; empty: it can.
std::string cuda_problem(const DeviceChoice& choice);
std::vector<std::string> cuda_devices();  // names of all CUDA devices, by index
// Of others, whose kernels are candidates beside ours: "cuBLASLt 13.0.2, cuDNN 9.19.0".
std::string cuda_libraries();

}  // namespace millrace
