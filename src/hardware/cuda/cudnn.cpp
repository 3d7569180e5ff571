#include "hardware/cuda/cudnn.h"

#include <cudnn_frontend.h>

#include <vector>

#include "base/log.h"
#include "hardware/cuda/cudnn_library.h"

namespace millrace {
namespace {

namespace fe = cudnn_frontend;

enum Tensor : int64_t { kQ = 1, kKeys, kValues, kKeyTable, kValueTable, kRows, kLength, kOut, kLogSums };
using Sizes = std::vector<int64_t>;

// The front of the workspace holds the two numbers (rows, length) that the library reads from device memory.
constexpr size_t kAlignment = 16, kNumbers = 256;

struct Plan {
  CudnnAttentionProblem problem;
  fe::graph::Graph graph;
  bool feasible = false;
};

void describe(const CudnnAttentionProblem& p, fe::graph::Graph& graph) {
  const fe::DataType_t type = p.dtype == DType::F16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
  graph.set_io_data_type(type);
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  const auto tensor = [&](Tensor id, const Sizes& dim, const Sizes& stride, fe::DataType_t of) {
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(id).set_dim(dim).set_stride(stride).set_data_type(of));
  };
  const auto table = [&](Tensor id) {
    return tensor(id, {1, 1, p.table_pages, 1}, {p.table_pages, p.table_pages, 1, 1}, fe::DataType_t::INT32);
  };
  const auto number = [&](Tensor id) { return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT32); };
  const auto along_rows = [&](int64_t stride) { return Sizes{p.rows * stride, p.head_dim, stride, 1}; };
  const int64_t page = int64_t{p.block_size} * p.head_dim;
  const Sizes rows{1, p.heads, p.rows, p.head_dim};
  const Sizes kv{p.pages, p.kv_heads, p.block_size, p.head_dim}, kv_stride{p.kv_heads * page, page, p.head_dim, 1};

  fe::graph::SDPA_attributes attention;
  attention.set_attn_scale(p.scale).set_causal_mask_bottom_right(true).set_generate_stats(true);
  attention.set_padding_mask(true).set_seq_len_q(number(kRows)).set_seq_len_kv(number(kLength));
  attention.set_paged_attention_k_table(table(kKeyTable)).set_paged_attention_v_table(table(kValueTable));
  attention.set_paged_attention_max_seq_len_kv(static_cast<int>(p.table_pages * p.block_size));
  auto [out, log_sums] = graph.sdpa(tensor(kQ, rows, along_rows(p.q_stride), type), tensor(kKeys, kv, kv_stride, type),
                                    tensor(kValues, kv, kv_stride, type), attention);
  out->set_output(true).set_uid(kOut).set_dim(rows).set_stride(along_rows(p.out_stride));
  log_sums->set_output(true).set_uid(kLogSums).set_data_type(fe::DataType_t::FLOAT);
  log_sums->set_dim({1, p.heads, p.rows, 1}).set_stride({p.heads * p.rows, p.rows, 1, 1});
}

std::string prepare(Plan& plan, cudnnHandle_t handle) {  // empty: it can run
  describe(plan.problem, plan.graph);
  if (auto built = plan.graph.build(handle, {fe::HeurMode_t::A}); built.is_bad()) return built.get_message();
  int64_t bytes = 0;
  if (auto asked = plan.graph.get_workspace_size(bytes); asked.is_bad()) return asked.get_message();
  return bytes + int64_t{kNumbers} <= int64_t{CudnnAttention::kWorkspaceBytes} ? "" : "it wants too much memory";
}

}  // namespace

struct CudnnAttention::State {
  static constexpr size_t kMostPlans = 64;  // the oldest plan is dropped

  cudnnHandle_t handle = nullptr;
  std::vector<std::unique_ptr<Plan>> plans;

  State() {
    if (has_cudnn() && cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  }
  ~State() {
    plans.clear();
    if (handle != nullptr) cudnnDestroy(handle);
  }

  Plan& find(const CudnnAttentionProblem& problem) {
    for (auto& plan : plans) {
      if (plan->problem == problem) return *plan;
    }
    if (plans.size() == kMostPlans) plans.erase(plans.begin());
    Plan& plan = *plans.emplace_back(std::make_unique<Plan>());
    plan.problem = problem;
    std::string why = "it could not be started";
    try {
      if (handle != nullptr) why = prepare(plan, handle);
    } catch (const std::exception& error) {
      why = error.what();
    }
    plan.feasible = why.empty();
    if (!plan.feasible) log().warn("cuDNN's attention does not take {} rows: {}", problem.rows, why);
    return plan;
  }
};

CudnnAttention::CudnnAttention() : state_(std::make_unique<State>()) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::available() { return has_cudnn(); }
size_t CudnnAttention::version() { return has_cudnn() ? cudnnGetVersion() : 0; }

bool CudnnAttention::can_run(const CudnnAttentionProblem& problem) { return state_->find(problem).feasible; }

bool CudnnAttention::run(const CudnnAttentionProblem& problem, const CudnnAttentionArgs& args, cudaStream_t stream) {
  Plan& plan = state_->find(problem);
  if (!plan.feasible) return false;
  auto* rows = static_cast<std::byte*>(args.workspace);
  std::byte *length = rows + kAlignment, *workspace = rows + kNumbers;
  const auto copy = [&](std::byte* to, const int32_t* from) {
    return cudaMemcpyAsync(to, from, sizeof *from, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
  };
  const auto at = [](const void* data) { return const_cast<void*>(data); };
  std::unordered_map<int64_t, void*> pointers{{kQ, at(args.q)},
                                              {kKeys, at(args.keys)},
                                              {kValues, at(args.values)},
                                              {kKeyTable, at(args.table)},
                                              {kValueTable, at(args.table)},
                                              {kRows, rows},
                                              {kLength, length},
                                              {kOut, args.out},
                                              {kLogSums, args.log_sums}};
  plan.feasible = copy(rows, args.rows) && copy(length, args.length) &&
                  cudnnSetStream(state_->handle, stream) == CUDNN_STATUS_SUCCESS &&
                  plan.graph.execute(state_->handle, pointers, workspace).is_good();
  if (!plan.feasible) log().warn("cuDNN's attention failed for {} rows: it is left out", problem.rows);
  return plan.feasible;
}

}  // namespace millrace
