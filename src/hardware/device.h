// A device as the engine uses it: its memory, the queue that kernels run on, and recorded steps that can be replayed.
// On the CPU memory is plain and all work is immediate.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/device_choice.h"
#include "hardware/hardware.h"
#include "tensor/memory.h"

namespace millrace {

class ThreadPool;

// Fills a device's memory through a few pinned buffers, so that packing on the host overlaps with copying.
class Uploader {
 public:
  virtual ~Uploader() = default;
  virtual size_t slot_bytes() const = 0;
  virtual std::byte* slot() = 0;                       // a buffer to fill; waits until one is free
  virtual void send(std::byte* to, size_t bytes) = 0;  // enqueues a copy of the last slot()
  virtual std::byte* scratch() = 0;                    // slot_bytes() of device memory, from which a kernel packs
  virtual void* queue() const = 0;
};

// Copies `bytes` of host memory slot by slot; the pool's threads fill each slot.
void upload_bytes(const std::byte* from, std::byte* to, size_t bytes, Uploader& uploader, ThreadPool& pool);
void fill_slot(std::byte* slot, const std::byte* from, size_t bytes, ThreadPool& pool);

// A sequence of kernels that one call launches (a CUDA graph).
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
  virtual int64_t available_memory() const = 0;                          // bytes that can be allocated now
  virtual std::optional<double> joules() const { return std::nullopt; }  // used since some moment, if it counts them

  virtual Memory& memory() = 0;                    // holds weights, KV cache and activations
  virtual Memory& staging() = 0;                   // pinned host memory; kernels can read it
  virtual void* queue() const { return nullptr; }  // cudaStream_t

  // Makes this device the calling thread's current one. Launches on queue() fail on a thread whose current device is
  // another. All other calls of a Device, its memories and its uploaders do it themselves.
  virtual void use_on_this_thread() {}
  virtual std::unique_ptr<Uploader> new_uploader() = 0;

  // Enqueued in order. Host addresses must be in staging().
  virtual void enqueue_write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void enqueue_read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void clear(std::byte* data, size_t bytes) = 0;  // sets to zero; enqueued
  virtual void finish() = 0;                              // waits for the queue; throws if the device failed

  // Marks in the queue, one for each step in flight: wait_for(i) returns when all work enqueued before mark(i) is done,
  // while later work may still run. Throws if the device failed.
  static constexpr int kStepsAtOnce = 2;
  virtual void mark(int) {}
  virtual void wait_for(int) {}

  // Work enqueued between begin and end is recorded, not run. end_recording() returns null if the device cannot record
  // or lacks memory.
  virtual bool begin_recording() { return false; }
  virtual std::unique_ptr<Recording> end_recording() { return nullptr; }
  virtual void drop_recording() noexcept {}  // replaces end_recording() after a failure

 protected:
  Device() = default;
  Hardware hardware_;
};

struct DeviceOptions {
  DeviceChoice choice = DeviceChoice::Cpu;
  int threads = 0;       // CPU threads; 0: one per usable core
  bool measure = false;  // measure the peak rates if they are not cached
  IsaSet isa = detect_isa();
};

// Auto takes the first GPU if this build can use it, else the CPU, and logs the reason. Cuda throws where the device is
// missing or unusable.
std::unique_ptr<Device> open_device(const DeviceOptions& options);

// The CPU as a device.
std::unique_ptr<Device> host_device(Hardware hardware);

// Why the chosen CUDA device cannot be used; empty: it can.
std::string cuda_problem(const DeviceChoice& choice);
std::vector<std::string> cuda_devices();  // names of all CUDA devices, by index
// NVIDIA libraries whose kernels are candidates: "cuBLASLt 13.0.2, cuDNN 9.19.0".
std::string cuda_libraries();

}  // namespace millrace
