#include "dataflow/cold_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/rounding.h"
#include "kernels/router/router.h"
#include "tensor/quantize.h"

namespace millrace {
namespace {

constexpr int kTurns = 16;            // different tables or routings that calls take in turn
constexpr int64_t kPatternRows = 64;  // random rows; all other rows repeat them

std::vector<std::byte> random_rows(DType format, int64_t rows, int64_t k) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> row(static_cast<size_t>(k));
  const size_t bytes = row_bytes(format, k);
  std::vector<std::byte> all(static_cast<size_t>(rows) * bytes);
  for (int64_t i = 0; i < rows; ++i) {
    std::generate(row.begin(), row.end(), [&] { return normal(random); });
    quantize_row(format, row.data(), all.data() + static_cast<size_t>(i) * bytes, k);
  }
  return all;
}

size_t token_bytes(const AttentionProblem& p) {
  const size_t key = row_bytes(p.kv, p.key_dim), value = p.latent ? 0 : row_bytes(p.kv, p.value_dim);
  return static_cast<size_t>(p.kv_heads) * (key + value);
}

size_t bytes_of(DType format, int64_t n, int64_t k, const LinearLayout& layout) {
  return layout.in_place(format, n, k) ? static_cast<size_t>(n) * row_bytes(format, k) : layout.bytes(format, n, k);
}

// One matrix of random rows in a layout: packed, uploaded or as in a file.
void place_matrix(DType format, int64_t n, int64_t k, const LinearLayout& layout, Uploader* uploader, ThreadPool& pool,
                  std::byte* to) {
  const auto pattern = random_rows(format, std::min(n, kPatternRows), k);
  std::vector<WeightView> parts;
  for (int64_t row = 0; row < n; row += kPatternRows)
    parts.push_back({format, std::min(kPatternRows, n - row), k, pattern.data()});
  if (uploader != nullptr) {
    layout.upload(parts, to, *uploader, pool);
  } else if (!layout.in_place(format, n, k)) {
    layout.pack(parts, to, pool);
  } else {
    for (const auto& part : parts) to = std::copy_n(part.data, part.bytes(), to);
  }
}

size_t routing_bytes(const GroupedLinearProblem& p) {
  return Arena::padded(sizeof(int32_t) * static_cast<size_t>(3 * p.pairs() + std::max(p.groups, p.all_groups) + 1));
}

}  // namespace

size_t cold_bytes(const Hardware& hardware) {
  constexpr int64_t kLeast = int64_t{96} << 20, kMost = int64_t{640} << 20;
  const int64_t largest_cache = std::max(hardware.l3_bytes, hardware.l2_bytes);
  return static_cast<size_t>(std::clamp(3 * largest_cache, kLeast, kMost));
}

size_t copies_to_read(size_t matrix_bytes, size_t model_bytes, const Hardware& hardware) {
  const size_t all = std::min(cold_bytes(hardware), model_bytes);
  return std::max<size_t>(1, all / matrix_bytes + (all % matrix_bytes != 0 ? 1 : 0));
}

ColdWeights::ColdWeights(DType format, int64_t n, int64_t k, const LinearLayout& layout, Device& device,
                         ThreadPool& pool, size_t model_bytes)
    : bytes_(bytes_of(format, n, k, layout)),
      arena_("weights to time kernels with",
             copies_to_read(Arena::padded(bytes_), model_bytes, device.hardware()) * Arena::padded(bytes_),
             device.memory()) {
  const auto uploader = device.is_host() ? nullptr : device.new_uploader();
  for (size_t i = 0; i < copies_to_read(Arena::padded(bytes_), model_bytes, device.hardware()); ++i) {
    std::byte* copy = arena_.take(bytes_);
    if (uploader == nullptr && i > 0) {
      std::memcpy(copy, copies_[0].data, bytes_);
    } else {
      place_matrix(format, n, k, layout, uploader.get(), pool, copy);
    }
    copies_.push_back({format, n, k, &layout, copy});
  }
}

ColdExperts::ColdExperts(const GroupedLinearProblem& p, const LinearLayout& layout, Device& device, ThreadPool& pool,
                         size_t model_bytes)
    : bytes_(bytes_of(p.format, p.n, p.k, layout)),
      stride_(Arena::padded(bytes_)),
      arena_("experts to time kernels with",
             copies_to_read(stride_ * static_cast<size_t>(p.groups), model_bytes, device.hardware()) * stride_ *
                 static_cast<size_t>(p.groups),
             device.memory()) {
  const auto uploader = device.is_host() ? nullptr : device.new_uploader();
  const auto groups = static_cast<size_t>(p.groups);
  const size_t copies = arena_.capacity() / (stride_ * groups);
  for (size_t i = 0; i < copies * groups; ++i) {
    std::byte* matrix = arena_.take(bytes_);
    if (uploader == nullptr && i > 0) {
      std::memcpy(matrix, each_[0], bytes_);
    } else {
      place_matrix(p.format, p.n, p.k, layout, uploader.get(), pool, matrix);
    }
    each_.push_back(matrix);
  }
  for (size_t i = 0; i < copies; ++i) {
    const auto span = std::span(each_).subspan(i * groups, groups);
    copies_.push_back({p.format, p.groups, p.n, p.k, &layout, span, stride_});
  }
}

RandomRoutings::RandomRoutings(const GroupedLinearProblem& p, Device& device, double skew)
    : arena_("routings to time kernels with", kTurns * routing_bytes(p), device.memory()) {
  std::mt19937 random(3);
  const int64_t among = std::max(p.groups, p.all_groups);
  std::vector<double> chances(static_cast<size_t>(among));
  for (size_t g = 0; g < chances.size(); ++g) chances[g] = std::pow(static_cast<double>(g + 1), -skew);
  std::discrete_distribution<int32_t> draw(chances.begin(), chances.end());
  const auto pairs = static_cast<size_t>(p.pairs());
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<int32_t> host(3 * pairs + chances.size() + 1);
    const auto at = [&](int32_t* base) {
      return Routing{.rows = p.rows,
                     .per_row = p.per_row,
                     .groups = among,
                     .chosen = base,
                     .weights = reinterpret_cast<float*>(base + pairs),
                     .order = base + 2 * pairs,
                     .offsets = base + 3 * pairs};
    };
    const Routing routing = at(host.data());
    for (int64_t pair = 0; pair < p.pairs(); ++pair) {
      int32_t *const of_row = routing.chosen + pair / p.per_row * p.per_row, *const end = routing.chosen + pair;
      int32_t group = draw(random);
      while (std::find(of_row, end, group) != end) group = draw(random);
      routing.chosen[pair] = group;
      routing.weights[pair] = 1 / static_cast<float>(p.per_row);
    }
    sort_by_group(routing);
    std::byte* to = arena_.take(routing_bytes(p));
    device.memory().write(to, reinterpret_cast<const std::byte*>(host.data()), host.size() * sizeof(int32_t));
    all_.push_back(at(reinterpret_cast<int32_t*>(to)).part(0, p.groups));
  }
}

ColdKeys::ColdKeys(const AttentionProblem& p, Device& device)
    : problem_(p),
      pages_per_sequence_(ceil_div(p.context, p.block_size)),
      pages_(
          std::max(pages_per_sequence_ * p.sequences, ceil_div(static_cast<int64_t>(cold_bytes(device.hardware())),
                                                               static_cast<int64_t>(token_bytes(p)) * p.block_size))),
      arena_("keys to time kernels with",
             2 * Arena::kAlignment + static_cast<size_t>(pages_ * p.block_size) * token_bytes(p), device.memory()),
      layer_{p.kv, p.kv_heads, p.key_dim, p.value_dim, p.block_size, pages_} {
  layer_.latent = p.latent;
  layer_.keys = random_pages(p.key_dim, device);
  layer_.values = p.latent ? layer_.keys : random_pages(p.value_dim, device);
  for (int64_t i = 0; i < 2 * pages_; ++i) numbers_.push_back(static_cast<int32_t>(i % pages_));
  slices_.resize(static_cast<size_t>(p.sequences));
  if (!device.is_host()) make_tables(device);
}

std::byte* ColdKeys::random_pages(int dim, Device& device) {
  const DType kv = problem_.kv;
  const size_t row = row_bytes(kv, dim);
  const int64_t rows = pages_ * problem_.kv_heads * problem_.block_size;
  // Larger pieces for a GPU: each copy costs a few microseconds.
  const int64_t pattern_rows = std::min(rows, device.is_host() ? kPatternRows : kPatternRows * 256);
  std::vector<std::byte> pattern = random_rows(kv, std::min(rows, kPatternRows), dim);
  const size_t unit = pattern.size();
  pattern.resize(static_cast<size_t>(pattern_rows) * row);
  for (size_t at = unit; at < pattern.size(); ++at) pattern[at] = pattern[at - unit];
  std::byte* pages = arena_.take(static_cast<size_t>(rows) * row);
  for (int64_t i = 0; i < rows; i += pattern_rows) {
    const auto count = static_cast<size_t>(std::min(pattern_rows, rows - i));
    device.memory().write(pages + static_cast<size_t>(i) * row, pattern.data(), count * row);
  }
  return pages;
}

void ColdKeys::advance() {
  const auto rows = static_cast<int32_t>(problem_.rows / problem_.sequences);
  const auto context = static_cast<int32_t>(problem_.context);
  for (size_t i = 0; i < slices_.size(); ++i) {
    const auto first = static_cast<size_t>(turn_++ * pages_per_sequence_ % pages_);
    slices_[i] = {static_cast<int32_t>(i) * rows, rows, context - rows, context,
                  std::span(numbers_).subspan(first, static_cast<size_t>(pages_per_sequence_))};
  }
}

void ColdKeys::make_tables(Device& device) {
  const auto sequences = slices_.size(), pages = static_cast<size_t>(pages_per_sequence_);
  const size_t slice_bytes = sequences * sizeof(SliceTables::Slice), page_bytes = sequences * pages * sizeof(int32_t);
  tables_ = std::make_unique<Arena>("tables to time kernels with",
                                    kTurns * (Arena::padded(slice_bytes) + Arena::padded(page_bytes)), device.memory());
  for (int turn = 0; turn < kTurns; ++turn) {
    advance();
    std::vector<SliceTables::Slice> slices;
    std::vector<int32_t> table;
    SliceTables tables;
    for (const auto& s : slices_) {
      slices.push_back({s.first_row, s.rows, s.past, s.past + s.rows});
      table.insert(table.end(), s.pages.begin(), s.pages.end());
      tables.longest_slice = std::max(tables.longest_slice, s.rows);
    }
    std::byte *to_slices = tables_->take(slice_bytes), *to_pages = tables_->take(page_bytes);
    device.memory().write(to_slices, reinterpret_cast<const std::byte*>(slices.data()), slice_bytes);
    device.memory().write(to_pages, reinterpret_cast<const std::byte*>(table.data()), page_bytes);
    tables.slices = reinterpret_cast<const SliceTables::Slice*>(to_slices);
    tables.pages = reinterpret_cast<const int32_t*>(to_pages);
    tables.page_stride = pages_per_sequence_;
    turns_.push_back(tables);
  }
}

ColdKeys::Turn ColdKeys::next() {
  if (turns_.empty()) {
    advance();
    return {slices_, {}};
  }
  return {slices_, turns_[static_cast<size_t>(turn_++) % turns_.size()]};
}

}  // namespace millrace
