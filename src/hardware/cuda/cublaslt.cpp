#include "hardware/cuda/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  bool complete = true;
};

template <class Function>
void find_symbol(Library& library, void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  library.complete = library.complete && function != nullptr;
}

Library load_library() {
  Library l;
  void* handle = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                           "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so"}) {
    if (handle == nullptr) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    l.complete = false;
    return l;
  }
  find_symbol(l, handle, "cublasLtCreate", l.create);
  find_symbol(l, handle, "cublasLtDestroy", l.destroy);
  find_symbol(l, handle, "cublasLtGetVersion", l.version);
  find_symbol(l, handle, "cublasLtMatmul", l.matmul);
  find_symbol(l, handle, "cublasLtMatmulDescCreate", l.desc_create);
  find_symbol(l, handle, "cublasLtMatmulDescDestroy", l.desc_destroy);
  find_symbol(l, handle, "cublasLtMatmulDescSetAttribute", l.desc_set);
  find_symbol(l, handle, "cublasLtMatrixLayoutCreate", l.layout_create);
  find_symbol(l, handle, "cublasLtMatrixLayoutDestroy", l.layout_destroy);
  find_symbol(l, handle, "cublasLtMatmulPreferenceCreate", l.preference_create);
  find_symbol(l, handle, "cublasLtMatmulPreferenceDestroy", l.preference_destroy);
  find_symbol(l, handle, "cublasLtMatmulPreferenceSetAttribute", l.preference_set);
  find_symbol(l, handle, "cublasLtMatmulAlgoGetHeuristic", l.heuristic);
  return l;
}

const Library& library() {
  static const Library loaded = load_library();
  return loaded;
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::BF16 ? CUDA_R_16BF : dtype == DType::F16 ? CUDA_R_16F : CUDA_R_32F;
}

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(ErrorKind::Io, "cuBLASLt: status {} while {}", int(status), doing);
}

// Row-major y [m, n] is column-major [n, m], so the weights are the first operand, transposed.
struct Prepared {
  CublasLtProblem problem;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool feasible = false;

  Prepared() = default;
  Prepared(const Prepared&) = delete;
  ~Prepared() {
    if (desc != nullptr) library().desc_destroy(desc);
    for (auto* layout : {w, x, y}) {
      if (layout != nullptr) library().layout_destroy(layout);
    }
  }
};

void describe(Prepared& p) {
  const Library& l = library();
  const CublasLtProblem& q = p.problem;
  const auto inputs = data_type(q.inputs), output = data_type(q.output);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(l.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  check(l.desc_set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "describing a product");
  const auto n = static_cast<uint64_t>(q.n), k = static_cast<uint64_t>(q.k), m = static_cast<uint64_t>(q.m);
  check(l.layout_create(&p.w, inputs, k, n, q.k), "describing a product");
  check(l.layout_create(&p.x, inputs, k, m, q.x_stride), "describing a product");
  check(l.layout_create(&p.y, output, n, m, q.y_stride), "describing a product");
}

}  // namespace

struct CublasLtGemm::State {
  static constexpr size_t kMostPrepared = 512;  // prompts have many lengths; the oldest entry is dropped

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::vector<std::unique_ptr<Prepared>> prepared;
  bool usable = false;

  State() {
    if (!library().complete || library().create(&handle) != CUBLAS_STATUS_SUCCESS) return;
    check(library().preference_create(&preference), "preparing");
    const size_t workspace = kWorkspaceBytes;
    check(library().preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
          "preparing");
    constexpr int64_t kSide = 8192;  // probe: a library older than the GPU has no algorithm at all
    usable = find({DType::BF16, DType::BF16, kSide, kSide, kSide, kSide, kSide, false}).feasible;
  }
  ~State() {
    if (handle == nullptr) return;
    prepared.clear();
    library().preference_destroy(preference);
    library().destroy(handle);
  }

  Prepared& find(const CublasLtProblem& problem) {
    for (auto& p : prepared) {
      if (p->problem == problem) return *p;
    }
    if (prepared.size() == kMostPrepared) prepared.erase(prepared.begin());
    auto made = std::make_unique<Prepared>();
    Prepared& p = *made;
    p.problem = problem;
    describe(p);
    const auto alignment = static_cast<uint32_t>(problem.y_alignment);
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check(library().preference_set(preference, which, &alignment, sizeof alignment), "preparing");
    std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals{};
    const int wanted = std::min(problem.proposal + 1, kProposals);
    int found = 0;
    const auto status =
        library().heuristic(handle, p.desc, p.w, p.x, p.y, p.y, preference, wanted, proposals.data(), &found);
    p.feasible = status == CUBLAS_STATUS_SUCCESS && found > 0;
    if (p.feasible) p.algorithm = proposals[static_cast<size_t>(std::min(wanted, found) - 1)].algo;
    return *prepared.emplace_back(std::move(made));
  }

  cublasStatus_t multiply(const Prepared& p, const cublasLtMatmulAlgo_t& algorithm, const void* x, const void* w,
                          void* y, std::span<std::byte> workspace, cudaStream_t stream) const {
    const float one = 1, beta = p.problem.accumulate ? 1 : 0;
    return library().matmul(handle, p.desc, &one, w, p.w, x, p.x, &beta, y, p.y, y, p.y, &algorithm, workspace.data(),
                            std::min(workspace.size(), kWorkspaceBytes), stream);
  }
};

CublasLtGemm::CublasLtGemm() : state_(std::make_unique<State>()) {}
CublasLtGemm::~CublasLtGemm() = default;

size_t CublasLtGemm::version() { return library().complete ? library().version() : 0; }

bool CublasLtGemm::available() const { return state_->usable; }

bool CublasLtGemm::can_run(const CublasLtProblem& problem) { return available() && state_->find(problem).feasible; }

void CublasLtGemm::run(const CublasLtProblem& problem, const void* x, const void* w, void* y,
                       std::span<std::byte> workspace, cudaStream_t stream) {
  const Prepared& p = state_->find(problem);
  check(state_->multiply(p, p.algorithm, x, w, y, workspace, stream), "multiplying");
}

}  // namespace millrace
