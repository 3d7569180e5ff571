#include "engine/declared_model.h"

#include "kernels/kernel_set.h"

namespace millrace {

DeclaredModel::DeclaredModel(const WeightSource& source, ThreadPool& pool)
    : device(open_device({.threads = pool.size()})),
      ops(cpu_kernels(), *device, pool, nullptr, {}),
      weights(source, ops),
      model(find_architecture(source).make(source, weights, state)) {
  weights.check_all_used();
}

}  // namespace millrace
