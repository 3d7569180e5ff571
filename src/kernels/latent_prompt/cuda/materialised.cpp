#include "kernels/latent_prompt/cuda/materialised.h"

#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/latent_prompt/absorbed.h"
#include "kernels/latent_prompt/cuda/steps.h"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

CublasLtGemm& gemm() { return per_cuda_device<CublasLtGemm>(); }

// The type of expanded rows. Caches in 8 bits are expanded to f16, which holds their numbers.
DType type_of(DType kv) { return kv == DType::BF16 ? DType::BF16 : DType::F16; }

LatentPromptOp::Problem problem_of(const LatentPromptOp::Args& a) {
  const KvLayer& kv = a.attention.kv;
  const SequenceSlice& slice = a.attention.sequences.front();
  return {.kv = kv.dtype,
          .heads = a.attention.heads,
          .plain_dim = a.plain_dim,
          .rotary_dim = kv.key_dim - kv.value_dim,
          .value_dim = a.value_dim,
          .latent_dim = kv.value_dim,
          .block_size = kv.block_size,
          .rows = slice.rows,
          .context = int64_t{slice.past} + slice.rows};
}

template <class T>
T* moved_by(T* data, DType dtype, int64_t elements) {
  return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(data) + elements * info(dtype).bytes);
}

// One chunk.
class Chunk {
 public:
  Chunk(const LatentPromptOp::Args& args, const LatentCut& cut, const Executor& executor)
      : args_(args),
        cut_(cut),
        executor_(executor),
        problem_(problem_of(args)),
        type_(type_of(problem_.kv)),
        launch_(cuda_launch(executor)) {}

  // Heads [first, first + heads).
  void attend(int first, int heads) const {
    bring_matrices(first, heads);
    const auto length = static_cast<int>(problem_.context), each = static_cast<int>(cut_.positions);
    for (int begin = 0, piece = 0; begin < length; begin += each, ++piece) {
      const int end = std::min(length, begin + each);
      expand(begin, end, heads);
      attend_to(begin, end, piece, first, heads);
    }
  }

 private:
  std::byte* at(size_t offset) const { return executor_.workspace + offset; }

  void bring_matrices(int first, int heads) const {
    const HeadRows keys = plain_heads(*args_.keys, first, heads, type_, at(cut_.unpacked), executor_.queue);
    const size_t unpacked_keys = static_cast<size_t>(int64_t{heads} * problem_.latent_dim * problem_.plain_dim) * 2;
    const HeadRows values =
        plain_heads(*args_.values, first, heads, type_, at(cut_.unpacked) + unpacked_keys, executor_.queue);
    check_launch(arrange_heads(keys, values,
                               {at(cut_.matrices), type_, heads, problem_.plain_dim, problem_.value_dim,
                                problem_.latent_dim, static_cast<int>(cut_.head_columns)},
                               launch_),
                 "arranging matrices of heads");
  }

  // cuBLASLt has a plan for each number of rows, so the last piece is rounded up; its last rows are zeros.
  void expand(int begin, int end, int heads) const {
    const int64_t rows = round_up(end - begin, int64_t{kExpandedTile}), columns = heads * cut_.head_columns;
    check_launch(gather_latents(args_.attention.kv, args_.attention.tables,
                                {at(cut_.latents), begin, end, static_cast<int>(rows)}, launch_),
                 "gathering latent rows");
    gemm().run({.inputs = type_,
                .output = type_,
                .n = columns,
                .k = problem_.latent_dim,
                .m = rows,
                .x_stride = cut_.row_columns,
                .y_stride = columns},
               at(cut_.latents), at(cut_.matrices), at(cut_.expanded),
               {executor_.workspace, CublasLtGemm::kWorkspaceBytes}, static_cast<cudaStream_t>(executor_.queue));
    if (type_ == DType::F16) cuda_limit({type_, rows, columns, columns, at(cut_.expanded)}, executor_.queue);
  }

  void attend_to(int begin, int end, int piece, int first, int heads) const {
    const AttentionArgs& a = args_.attention;
    const SequenceSlice& slice = a.sequences.front();
    const int64_t latent = problem_.latent_dim;
    ExpandedArgs e;
    e.attention.q = cuda_matrix(a.q);
    e.attention.q.data = moved_by(a.q.data, a.q.dtype, first * cut_.row_columns + latent);
    e.attention.out = cuda_matrix(a.out);
    e.attention.out.data = moved_by(a.out.data, a.out.dtype, int64_t{first} * problem_.value_dim);
    e.attention.scale = a.scale;
    e.attention.softcap = a.softcap;
    e.attention.window = a.window;
    e.attention.sinks = a.sinks == nullptr ? nullptr : a.sinks + first;
    e.plain = cuda_matrix(args_.plain);
    e.plain.data = moved_by(args_.plain.data, args_.plain.dtype, first * args_.plain_stride);
    e.plain_stride = args_.plain_stride;
    e.shared_stride = cut_.row_columns;
    e.slice = {slice.first_row, slice.rows, slice.past};
    e.heads = heads;
    e.plain_dim = problem_.plain_dim;
    e.shared_dim = problem_.rotary_dim;
    e.value_dim = problem_.value_dim;
    e.begin = begin;
    e.end = end;
    e.expanded = at(cut_.expanded);
    e.head_columns = static_cast<int>(cut_.head_columns);
    e.shared = moved_by(at(cut_.latents), type_, latent);
    e.position_stride = cut_.row_columns;
    e.before = sums(piece);
    e.after = sums(piece + 1);
    check_launch(launch_expanded_attention(type_, e, launch_), "starting attention to expanded rows");
  }

  ExpandedSums sums(int piece) const {
    const size_t which = static_cast<size_t>(piece % 2);
    return {reinterpret_cast<float*>(at(cut_.sums[which])), reinterpret_cast<float*>(at(cut_.totals[which]))};
  }

  const LatentPromptOp::Args& args_;
  const LatentCut& cut_;
  const Executor& executor_;
  const LatentPromptOp::Problem problem_;
  const DType type_;
  const CudaLaunch launch_;
};

}  // namespace

bool CudaMaterialised::can_run(const Problem& p, const Hardware& hardware) const {
  if (!is_gpu(hardware) || hardware.architecture != 90 || p.precision == Precision::Exact) return false;
  if (p.kv == DType::F32 || !is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim)) return false;
  if (p.plain_dim % 8 != 0 || p.rotary_dim % 8 != 0 || p.latent_dim % 8 != 0 || p.value_dim % 2 != 0) return false;
  return can_attend_expanded(type_of(p.kv), p.plain_dim, p.rotary_dim, p.value_dim) && gemm().available();
}

double CudaMaterialised::estimate_us(const Problem& p, const Hardware& h) const {
  const LatentCut cut(p, h.cores, limits_);
  const double peak = 1e3 * h.ceilings.bf16_gflops;  // in us
  const double groups = double(ceil_div(int64_t{p.heads}, cut.heads)),
               pieces = double(ceil_div(p.context, cut.positions));
  const double matrices = double(p.heads) * double(cut.head_columns) * p.latent_dim;
  const double expansion = 2 * matrices * double(p.context) / (0.75 * peak);
  // A tile of queries occupies a multiprocessor. Columns are padded to the sizes that the kernel was built for.
  const double keys = double(round_up(p.plain_dim, int64_t{64})) + 64, values = padded_value(p.plain_dim, p.value_dim);
  const double seen = p.seen() + kExpandedTile / 2.0;
  const double tile = 2 * kExpandedTile * seen * (keys + values) / (0.65 * peak / h.cores);
  // Each group arranges its matrices (three launches), each piece gathers, expands and attends.
  const double launches = groups * (3 + 3 * pieces) * 3;
  return launches + gpu_us(2 * 2 * 2 * matrices, h, 0.25) + expansion + double(cut.rounds) * tile;
}

size_t CudaMaterialised::workspace_bytes(const Problem& p, const Hardware& h) const {
  return LatentCut(p, h.cores, limits_).bytes;
}

void CudaMaterialised::run(const Args& args, const Executor& executor) const {
  const LatentCut cut(problem_of(args).bucketed(), executor.hardware->cores, limits_);
  const Chunk chunk(args, cut, executor);
  const int heads = args.attention.heads, each = static_cast<int>(cut.heads);
  for (int first = 0; first < heads; first += each) chunk.attend(first, std::min(each, heads - first));
}

KernelList<LatentPromptOp> LatentPromptOp::cuda() {
  static const CudaMaterialised materialised(LatentCut::Limits{});
  static const AbsorbedForm absorbed(AttentionOp::cuda());
  return {&materialised, &absorbed};
}

}  // namespace millrace
