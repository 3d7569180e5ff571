// A model as its architecture declares it: names, pieces and sizes of all tensors. No weight is read, nothing is
// planned.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "models/model.h"

namespace millrace {

struct DeclaredModel {
  // Throws if the architecture does not support the config, and for tensors that are missing, unknown or of another
  // shape. Refers to both arguments.
  DeclaredModel(const WeightSource& source, ThreadPool& pool);

  std::unique_ptr<Device> device;
  Ops ops;
  Weights weights;
  StateLayout state;
  std::unique_ptr<Model> model;
};

}  // namespace millrace
