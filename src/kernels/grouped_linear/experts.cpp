#include "kernels/grouped_linear/experts.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/rounding.h"
#include "base/thread_pool.h"
#include "kernels/activation/activation.h"
#include "kernels/grouped_linear/expert_choice.h"
#include "kernels/grouped_linear/weighted_sum.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kPiecesPerThread = 16;
constexpr int64_t kStripCost = 16;         // a strip is read and unpacked in the time of so many rows of products
constexpr int64_t kStripsTogether = 4;     // fewest strips of a piece without panels: streams of decode kernels
constexpr int64_t kFewestRows = 64;        // fewer rows do not repay unpacking a panel
constexpr int64_t kMostOutputs = 1 << 16;  // of a piece: gate and up stay in the L2 cache
constexpr int64_t kElementsWorthARegion = 1 << 14;
constexpr double kFlopsToQuantize = 40;  // per element of x

const KernelList<ActivationOp> kActivations = ActivationOp::cpu();

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t floats(int64_t count) { return aligned(static_cast<size_t>(count) * sizeof(float)); }

LinearProblem matrix_of(const GroupedLinearProblem& p) {
  return {p.format, p.layout, p.precision, p.n, p.k, 1, p.x, false};
}

// Gate and up are separate matrices if no strip has rows of both.
bool separable(std::string_view layout, int64_t n) { return layout == rows_layout().name() || n / 2 % kStripRows == 0; }

// Gates, then ups, in matrices of their own.
bool lie_apart(const GroupedWeights& w) { return std::ssize(w.data) == 2 * w.groups; }

// Products of a sum are computed and added up in blocks of columns that stay in the last-level cache.
constexpr int64_t kBlockElements = 2 << 20, kColumnsOfABlock = 128;  // fewest columns: a piece of four panels

int64_t block_columns(int64_t pairs, int64_t n) {
  return std::min(n, std::max(kBlockElements / pairs / kColumnsOfABlock, int64_t{1}) * kColumnsOfABlock);
}
// Upper bound over all batches of up to so many pairs.
int64_t most_block_elements(int64_t pairs, int64_t n) {
  return std::min(pairs * n, std::max(kBlockElements, pairs * kColumnsOfABlock));
}

// One group with at least one pair.
struct Share {
  const PieceKernel* kernel;
  LinearWeights weights[2];  // one matrix, or gate and up
  const float* bias[2];
  int64_t first, count;           // pairs order[first] ... order[first + count - 1]
  size_t x;                       // offset of its prepared rows
  int64_t strips, rows;           // of a piece
  int64_t along_n;                // pieces along n
  int64_t tiles_end, pieces_end;  // tiles to prepare and pieces up to and including this group
};

// Strips of the narrowest piece.
int64_t fewest_strips(const PieceLimits& limits) {
  return limits.strips_per_panel > 0 ? limits.strips_per_panel : kStripsTogether;
}

// Sizes of the workspace: shares, positions of pairs, products, workers, prepared x.
struct Space {
  size_t shares, positions, products, worker, gathered = 0, scratch = 0;
  int64_t outputs = kMostOutputs;  // of a worker: a matrix of a piece

  Space(int64_t groups, int64_t pairs, int64_t k, int64_t kept_products, std::span<const PieceKernel* const> kernels)
      : shares(aligned(static_cast<size_t>(std::min(groups, pairs)) * sizeof(Share))),
        positions(aligned(static_cast<size_t>(pairs) * sizeof(int32_t))),
        products(floats(kept_products)) {
    for (const auto* kernel : kernels) {
      const PieceLimits limits = kernel->limits();
      scratch = std::max(scratch, aligned(limits.scratch_bytes));
      gathered = std::max(gathered, floats(limits.prepared_rows * k));
      outputs = std::max(outputs, fewest_strips(limits) * kStripRows * round_up(limits.most_rows, limits.tile_rows));
    }
    worker = scratch + gathered + 2 * floats(outputs);
  }

  size_t before_x(int threads) const { return shares + positions + products + worker * static_cast<size_t>(threads); }
};

// Upper bound of the prepared rows over all routings: each group has at most one tile that is not full.
size_t most_x_bytes(int64_t groups, int64_t pairs, int64_t k, std::span<const PieceKernel* const> kernels) {
  size_t tile_bytes = 0;
  double row_bytes = 0;
  for (const auto* kernel : kernels) {
    const int64_t tile = kernel->limits().tile_rows;
    const size_t bytes = kernel->x_bytes(tile, k);
    tile_bytes = std::max(tile_bytes, bytes);
    row_bytes = std::max(row_bytes, static_cast<double>(bytes) / static_cast<double>(tile));
  }
  return static_cast<size_t>(std::min(groups, pairs)) * (tile_bytes + 64) +
         static_cast<size_t>(row_bytes * static_cast<double>(pairs)) + 64;
}

// One call of the kernel.
class Step {
 public:
  Step(const GroupedLinearArgs& args, const Executor& executor, ExpertChoice& choice)
      : args_(args),
        routing_(args.routing),
        executor_(executor),
        n_(args.weights->n),
        k_(args.weights->k),
        parts_((args.gated || lie_apart(*args.weights)) && separable(args.weights->layout->name(), n_) ? 2 : 1),
        keeps_products_(args.sum || (args.gated && parts_ == 1)),
        columns_(args.sum ? block_columns(routing_.pairs(), n_) : n_ / parts_),
        space_(routing_.groups, routing_.pairs(), k_, keeps_products_ ? routing_.pairs() * columns_ : 0,
               choice.candidates()) {
    std::byte* at = executor.workspace;
    shares_ = reinterpret_cast<Share*>(at);
    positions_ = reinterpret_cast<int32_t*>(at += space_.shares);
    products_ = reinterpret_cast<float*>(at += space_.positions);
    workers_ = at += space_.products;
    x_ = at + space_.worker * static_cast<size_t>(executor.pool->size());
    plan(choice);
  }

  void run() const {
    if (count_ == 0) return;
    prepare();
    if (args_.sum) find_positions();
    for (int64_t column = 0; column < n_ / parts_; column += columns_) {
      executor_.pool->share(shares_[count_ - 1].pieces_end, 1, [&](int worker, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) multiply(i, column, worker);
      });
      if (args_.sum) add_products(column);
    }
    if (keeps_products_ && args_.gated) activate_products();
  }

 private:
  // All groups of a single row read the same x.
  bool has_one_x() const { return routing_.rows == 1 && !args_.sum; }
  int64_t strips() const { return ceil_div(columns_, kStripRows); }  // of a block of columns
  std::byte* worker(int index) const { return workers_ + space_.worker * static_cast<size_t>(index); }
  const float* x_row(int64_t position) const {
    const int64_t pair = routing_.order[position];
    return args_.x.row<float>(args_.sum ? pair : pair / routing_.per_row);
  }

  void plan(ExpertChoice& choice) {
    const PieceKernel* for_all = args_.invariant ? choice.of_any() : nullptr;
    double cost = 0;
    size_t x = 0;
    for (int64_t group = 0; group < routing_.groups; ++group) {
      const int64_t first = routing_.offsets[group], count = routing_.offsets[group + 1] - first;
      if (count == 0) continue;
      Share& s = shares_[count_++];
      s.kernel = for_all != nullptr ? for_all : choice.of(count);
      MR_ASSERT(s.kernel != nullptr);  // can_run() checked every number of rows
      s.first = first;
      s.count = count;
      s.x = has_one_x() ? 0 : x;
      x += aligned(s.kernel->x_bytes(count, k_));
      set_weights(group, s);
      cost += double(strips()) * double(count + kStripCost);
    }
    const double piece_cost = cost / double(kPiecesPerThread * executor_.pool->size());
    int64_t tiles = 0, pieces = 0;
    for (int64_t i = 0; i < count_; ++i) {
      Share& s = shares_[i];
      cut(piece_cost, s);
      if (i == 0 || !has_one_x()) tiles += ceil_div(s.count, s.kernel->limits().prepared_rows);
      pieces += s.along_n * ceil_div(s.count, s.rows);
      s.tiles_end = tiles;
      s.pieces_end = pieces;
    }
  }

  void set_weights(int64_t group, Share& s) const {
    const GroupedWeights& w = *args_.weights;
    const int64_t n = n_ / parts_;
    const size_t bytes = w.layout->in_place(w.format, n, k_) ? static_cast<size_t>(n) * row_bytes(w.format, k_)
                                                             : w.layout->bytes(w.format, n, k_);
    for (int64_t part = 0; part < parts_; ++part) {
      const std::byte* data = lie_apart(w) ? w.data[static_cast<size_t>(part * w.groups + group)]
                                           : w.data[static_cast<size_t>(group)] + static_cast<size_t>(part) * bytes;
      s.weights[part] = {w.format, n, k_, w.layout, data};
      s.bias[part] = args_.bias != nullptr ? args_.bias + group * n_ + part * n : nullptr;
    }
  }

  // Pieces of about the given cost. Rows are cut where even the narrowest piece would cost more.
  void cut(double cost, Share& s) const {
    const PieceLimits limits = s.kernel->limits();
    const int64_t together = fewest_strips(limits);
    const int64_t even = ceil_div(s.count, ceil_div(s.count, limits.most_rows));
    const auto affordable = static_cast<int64_t>(cost / double(together)) - kStripCost;
    s.rows = round_up(std::min(even, std::max(affordable, kFewestRows)), limits.tile_rows);
    const auto wanted = static_cast<int64_t>(cost / double(together * (s.rows + kStripCost)));
    const int64_t in_cache = std::max<int64_t>(1, kMostOutputs / (together * kStripRows * s.rows));
    const int64_t most = limits.strips_per_panel > 0 ? std::min(in_cache, kMostPanels) : in_cache;
    s.strips = together * std::clamp<int64_t>(wanted, 1, most);
    s.along_n = ceil_div(strips(), s.strips);
  }

  LinearArgs linear_args(const Share& s, int64_t part) const {
    LinearArgs args;
    args.x = {DType::F32, s.count, k_, k_, nullptr};
    args.weights = &s.weights[part];
    args.bias = s.bias[part];
    args.invariant = args_.invariant;
    return args;
  }

  // A matrix whose row `row` and column `column` is the first element of `to`. The origin may lie outside of any
  // buffer, so it is computed with integers.
  static Matrix placed(const float* to, int64_t row, int64_t column, int64_t rows, int64_t cols, int64_t stride) {
    const auto before = static_cast<uintptr_t>(row * stride + column) * sizeof(float);
    return {DType::F32, rows, cols, stride, reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(to) - before)};
  }

  void prepare() const {
    const int64_t tiles = shares_[count_ - 1].tiles_end, rows = has_one_x() ? 1 : routing_.pairs();
    const auto some = [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) prepare(i, worker);
    };
    if (rows * k_ < kElementsWorthARegion) return some(0, 0, tiles);
    executor_.pool->share(tiles, std::max<int64_t>(1, tiles / (8 * executor_.pool->size())), some);
  }

  // Gathers and converts the rows of one tile.
  void prepare(int64_t tile, int worker_index) const {
    const auto* s = std::upper_bound(shares_, shares_ + count_, tile,
                                     [](int64_t value, const Share& share) { return value < share.tiles_end; });
    const int64_t each = s->kernel->limits().prepared_rows;
    const int64_t row = (tile - (s == shares_ ? 0 : s[-1].tiles_end)) * each, end = std::min(row + each, s->count);
    const float* from = x_row(s->first + row);
    if (end - row > 1) {
      auto* gathered = reinterpret_cast<float*>(worker(worker_index) + space_.scratch);
      for (int64_t i = row; i < end; ++i) {
        std::memcpy(gathered + (i - row) * k_, x_row(s->first + i), static_cast<size_t>(k_) * sizeof(float));
      }
      from = gathered;
    }
    LinearArgs args = linear_args(*s, 0);
    args.x = placed(from, row, 0, s->count, k_, k_);
    s->kernel->prepare(args, row, end, x_ + s->x);
  }

  void multiply(int64_t index, int64_t first_column, int worker_index) const {
    const auto* s = std::upper_bound(shares_, shares_ + count_, index,
                                     [](int64_t value, const Share& share) { return value < share.pieces_end; });
    const int64_t within = index - (s == shares_ ? 0 : s[-1].pieces_end);
    const int64_t before = first_column / kStripRows, row = within / s->along_n * s->rows;
    const int64_t all = std::min(before + strips(), ceil_div(n_ / parts_, kStripRows));
    const int64_t strip = before + within % s->along_n * s->strips, strip_end = std::min(strip + s->strips, all);
    if (strip >= all) return;  // the last block is narrower
    const LinearPiece piece{strip, strip_end, row, std::min(row + s->rows, s->count), strip_end};
    std::byte* scratch = worker(worker_index);
    if (!keeps_products_) return multiply_and_scatter(*s, piece, scratch);
    LinearArgs args = linear_args(*s, 0);
    args.y = placed(products_ + s->first * columns_, 0, first_column, s->count, n_, columns_);
    s->kernel->multiply(args, x_ + s->x, scratch, piece);
  }

  void multiply_and_scatter(const Share& s, const LinearPiece& piece, std::byte* scratch) const {
    const int64_t rows = piece.m_end - piece.m_begin, width = (piece.strip_end - piece.strip_begin) * kStripRows;
    const int64_t column = piece.strip_begin * kStripRows, cols = std::min(width, n_ / parts_ - column);
    Matrix results[2];
    auto* to = reinterpret_cast<float*>(scratch + space_.scratch + space_.gathered);
    for (int64_t part = 0; part < parts_; ++part, to += space_.outputs) {
      LinearArgs args = linear_args(s, part);
      args.y = placed(to, piece.m_begin, column, s.count, n_ / parts_, width);
      s.kernel->multiply(args, x_ + s.x, scratch, piece);
      results[part] = {DType::F32, rows, cols, width, reinterpret_cast<std::byte*>(to)};
    }
    if (args_.gated) activate(results[0], results[1], results[0]);
    const int64_t kept = args_.gated ? 1 : parts_;
    for (int64_t i = 0; i < rows; ++i) {
      float* y = args_.y.row<float>(routing_.order[s.first + piece.m_begin + i]) + column;
      for (int64_t part = 0; part < kept; ++part)
        std::memcpy(y + part * (n_ / parts_), results[part].row<float>(i), static_cast<size_t>(cols) * sizeof(float));
    }
  }

  void activate(Matrix gate, Matrix up, Matrix out) const {
    const ActivationOp::Problem problem{args_.activation, true, gate.rows, gate.cols};
    first_that_runs(kActivations, problem, *executor_.hardware)
        .run({args_.activation, gate, &up, out, args_.clamp}, {});
  }

  void activate_products() const {
    const int64_t first = routing_.offsets[0], count = routing_.offsets[routing_.groups] - first;
    for_rows(executor_, count, n_, [&](int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        const Matrix both{DType::F32, 1, n_, n_, reinterpret_cast<std::byte*>(products_ + i * n_)};
        activate(both.columns(0, n_ / 2), both.columns(n_ / 2, n_ / 2), args_.y.rows_from(routing_.order[i], 1));
      }
    });
  }

  // Skipped pairs have no product.
  void find_positions() const {
    if (routing_.partial) std::fill_n(positions_, routing_.pairs(), WeightedSum::kNone);
    const int64_t end = routing_.offsets[routing_.groups];
    for (int64_t i = routing_.offsets[0]; i < end; ++i) positions_[routing_.order[i]] = static_cast<int32_t>(i);
  }

  void add_products(int64_t column) const {
    const AddWeightedSum add = add_weighted_sum_for(*executor_.hardware);
    const int64_t per_row = routing_.per_row, count = std::min(columns_, n_ - column);
    for_rows(executor_, routing_.rows, count * per_row, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t pair = row * per_row;
        add({products_, columns_, positions_ + pair, routing_.weights + pair, per_row},
            args_.y.row<float>(row) + column, count);
      }
    });
  }

  const GroupedLinearArgs& args_;
  const Routing& routing_;
  const Executor& executor_;
  const int64_t n_, k_, parts_;
  const bool keeps_products_;  // products are stored, [pairs sorted by group][columns_], and then combined
  const int64_t columns_;      // of y that are computed in one region
  const Space space_;
  Share* shares_;
  int64_t count_ = 0;   // active groups
  int32_t* positions_;  // [pairs]: position of each pair in the order by group
  float* products_;
  std::byte *workers_, *x_;
};

}  // namespace

ExpertsKernel::ExpertsKernel(Precision precision)
    : precision_(precision), name_(precision == Precision::Exact ? "experts_exact" : "experts") {}

ExpertsKernel::ExpertsKernel(const PieceKernel& only, const ExpertsKernel& base)
    : only_(&only), base_(&base), name_("experts_" + std::string(only.name())) {}

bool ExpertsKernel::can_run(const Problem& p, const Hardware& hardware) const {
  if (p.x != DType::F32 || hardware.device != DeviceKind::Cpu || p.precision != precision_) return false;
  if (p.gated && p.sum) return false;
  ExpertChoice choice(matrix_of(p), hardware, only_);
  return choice.of(1) != nullptr && choice.of(p.rows) != nullptr && (!p.invariant || choice.of_any() != nullptr);
}

double ExpertsKernel::estimate_us(const Problem& p, const Hardware& hardware) const {
  ExpertChoice choice(matrix_of(p), hardware, only_);
  const double active = std::max(p.expected_active(), 0.01), pairs = p.expected_pairs();
  const auto rows = std::max<int64_t>(1, static_cast<int64_t>(pairs / active + 0.5));
  const PieceKernel* kernel = p.invariant ? choice.of_any() : choice.of(rows);
  LinearProblem stacked = matrix_of(p);  // the active matrices as one
  stacked.n = std::max<int64_t>(1, static_cast<int64_t>(double(p.n) * active));
  stacked.m = rows;
  const double more_rows = p.rows == 1 && !p.sum ? 0 : std::max(0.0, pairs - double(rows));
  const double quantize_us = 1e-3 * kFlopsToQuantize * more_rows * double(p.k) / hardware.ceilings.f32_gflops;
  const auto elements = static_cast<int64_t>(pairs * double(p.n));
  const double activate_us = p.gated ? row_work_us(elements / 2, 100, hardware) : 0;
  const double sum_us = p.sum ? row_work_us(elements, 12, hardware) : 0;
  return kernel->estimate_us(stacked, hardware) + quantize_us + activate_us + sum_us;
}

size_t ExpertsKernel::workspace_bytes(const Problem& p, const Hardware& hardware) const {
  const ExpertChoice choice(matrix_of(p), hardware, only_);
  int64_t products = 0;
  if (p.sum) products = most_block_elements(p.pairs(), p.n);
  if (p.gated && !separable(p.layout, p.n)) products = p.pairs() * p.n;
  const Space space(p.groups, p.pairs(), p.k, products, choice.candidates());
  return space.before_x(hardware.threads) + most_x_bytes(p.groups, p.pairs(), p.k, choice.candidates());
}

void ExpertsKernel::run(const Args& args, const Executor& executor) const {
  if (args.routing.rows == 0) return;
  const GroupedWeights& w = *args.weights;
  ExpertChoice choice({w.format, w.layout->name(), precision_, w.n, w.k}, *executor.hardware, only_);
  Step(args, executor, choice).run();
}

}  // namespace millrace
