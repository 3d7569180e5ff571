// The ops of low-rank adapters.
#include "cuda/gpu_routing.h"
#include "kernels/grouped_lora_cases.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

TEST(CudaLora, MatchesTheReference) {
  for (const LoraCase& c : lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16, DType::F16}) {
      for (const DType out : {DType::F32, format}) {
        Random random;
        SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
        LoraBatch batch(c, format, random);
        round_to(batch.x, format);
        round_to(batch.y, out);
        TestMatrix expected = batch.y, y = batch.y;
        LoraOp::reference()->run(batch.args(batch.x.view(), expected.view(), batch.table_at(batch.bytes.data())), {});
        const GpuBytes memory(batch.bytes), adapters(batch.adapters), ids(batch.ids), chosen(batch.chosen);
        const GpuBytes table(batch.table_at(memory.data()));
        const GpuCopy gpu_x(batch.x, format), gpu_y(y, out);
        LoraOp::Args args = batch.args(gpu_x.view(), gpu_y.view(), {});
        args.adapters = adapters.as<int32_t>();
        args.table = table.as<LoraWeights>();
        if (c.embedding) args.ids = {ids.as<int32_t>(), batch.ids.size()};
        args.chosen = chosen.as<int32_t>();
        for (const Kernel<LoraOp>* kernel : cuda_kernels().of<LoraOp>()) {
          ASSERT_TRUE(kernel->can_run(batch.problem, gpu().hardware()));
          const GpuBytes workspace(kernel->workspace_bytes(batch.problem, gpu().hardware()));
          kernel->run(args, on_gpu(workspace.data()));
          gpu_y.read(y);
          EXPECT_LT(y.distance(expected), out == DType::F32 ? 1e-5 : out == DType::F16 ? 2e-3 : 1e-2) << kernel->name();
        }
      }
    }
  }
}

TEST(CudaGroupedLora, MatchesTheReference) {
  for (const GroupedLoraCase& c : grouped_lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16, DType::F16}) {
      for (const DType out : {DType::F32, format}) {
        Random random;
        SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
        GroupedLoraBatch batch(c, format, random);
        round_to(batch.x, format);
        round_to(batch.y, out);
        TestMatrix expected = batch.y, y = batch.y;
        GroupedLoraOp::reference()->run(batch.args(batch.x.view(), expected.view(), batch.table_at(batch.bytes.data())),
                                        {});
        const GpuBytes memory(batch.bytes), adapters(batch.adapters);
        const GpuBytes table(batch.table_at(memory.data()));
        const GpuRouting routing(batch.routing.view());
        const GpuCopy gpu_x(batch.x, format), gpu_y(y, out);
        GroupedLoraOp::Args args = batch.args(gpu_x.view(), gpu_y.view(), {});
        args.adapters = adapters.as<int32_t>();
        args.table = table.as<LoraWeights>();
        args.routing = routing.view();
        for (const Kernel<GroupedLoraOp>* kernel : cuda_kernels().of<GroupedLoraOp>()) {
          ASSERT_TRUE(kernel->can_run(batch.problem, gpu().hardware()));
          const GpuBytes workspace(kernel->workspace_bytes(batch.problem, gpu().hardware()));
          kernel->run(args, on_gpu(workspace.data()));
          gpu_y.read(y);
          EXPECT_LT(y.distance(expected), out == DType::F32 ? 1e-5 : out == DType::F16 ? 2e-3 : 1e-2) << kernel->name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
