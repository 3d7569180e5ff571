// A recorded step that the CPU takes part in: recordings of the device, with work of the CPU between them.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hardware/device.h"

namespace millrace {

class HostWork final : public Recording {
 public:
  explicit HostWork(std::function<void()> work) : work_(std::move(work)) {}
  void replay() override { work_(); }

 private:
  std::function<void()> work_;
};

class StepRecording final : public Recording {
 public:
  void add(std::unique_ptr<Recording> part) { parts_.push_back(std::move(part)); }
  void replay() override {
    for (const auto& part : parts_) part->replay();
  }

 private:
  std::vector<std::unique_ptr<Recording>> parts_;
};

}  // namespace millrace
