// CUDA attention alone: checks every kernel against a plain f64 one, then times it.
//
//   attention check decode|cluster|even|prefill|hopper|each|general [N]  every N-th case; the last line counts failures
//
//   attention decode                 microseconds, and TB/s of KV read
//
//   attention prefill [hopper]       microseconds and TFLOP/s
//
//   attention brief [large]          a selection, to compare builds
//
//   attention prompts [hopper|each]  TFLOP/s over prompt lengths; each: one block per tile
//
//   attention once [prompt]          one launch of some shapes, for a profiler
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attention_cases.h"
#include "attention_reference.cuh"
#include "kernels/attention/cuda/prefill/entry.h"

namespace millrace::bench {
namespace {

uint16_t half_bits(DType dtype, float x) {
  if (dtype == DType::F16) return __half_as_ushort(__float2half_rn(x));
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

void put(std::vector<uint8_t>& to, DType dtype, int64_t index, float x) {
  if (dtype == DType::F32) {
    std::memcpy(to.data() + index * 4, &x, 4);
  } else {
    const uint16_t bits = half_bits(dtype, x);
    std::memcpy(to.data() + index * 2, &bits, 2);
  }
}

void put_row(std::vector<uint8_t>& to, DType dtype, int64_t row, const std::vector<float>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  if (dtype != DType::Q8_0) {
    for (int64_t i = 0; i < n; ++i) put(to, dtype, row * n + i, x[i]);
    return;
  }
  for (int64_t i = 0; i < n; i += 32) {
    float largest = 0;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(x[i + j]));
    uint8_t* block = to.data() + (row * n + i) / 32 * 34;
    const uint16_t scale = half_bits(DType::F16, largest / 127);
    std::memcpy(block, &scale, 2);
    for (int j = 0; j < 32; ++j)
      block[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::lround(x[i + j] * 127 / largest)));
  }
}

int64_t bytes_of(DType dtype, int64_t count) {
  return dtype == DType::Q8_0 ? count / 32 * 34 : count * plain_bytes(dtype);
}

// Queries and keys whose products have the distribution that the case asks for; u is a random vector of signs.
class Maker {
 public:
  Maker(const Case& c, std::mt19937& random) : c_(c), random_(random), u_(c.head_dim) {
    for (float& x : u_) x = random() % 2 != 0 ? 1.0f : -1.0f;
    spike_ = static_cast<int>(random() % 60);
    seed_ = random();
  }
  std::vector<float> query() { return along(c_.data == Data::Overflow ? 1e25f : 8, c_.data == Data::Sharp ? 8 : 1); }
  std::vector<float> key(int position) {
    const float unit = 1 / (8 * std::sqrt(float(c_.head_dim)));  // scales to a score of one
    switch (c_.data) {
      case Data::Huge:
        return along(uniform() * 1e4f * unit, 0);
      case Data::Equal:
        return along(3 * unit, 0);
      case Data::Spike:
        return along((position == spike_ ? 1e4f : uniform()) * unit, 0);
      case Data::Low:
        return along((-1e4f + 4 * uniform()) * unit, 0);
      case Data::High:
        return along((1e4f + 4 * uniform()) * unit, 0);
      case Data::Overflow:
        return along(-1e25f, 0);
      default:
        return along(0, 1);
    }
  }
  std::vector<float> value() { return along(0, 1); }

 private:
  float uniform() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  std::vector<float> along(float amount, float spread) {
    const bool plain = c_.data == Data::Random || c_.data == Data::Sharp;
    std::vector<float> x(u_.size());
    for (size_t i = 0; i < x.size(); ++i) {
      if (plain || amount == 0) {
        x[i] = spread * noise(seed_, count_++);
      } else {
        x[i] = amount * u_[i];
      }
    }
    return x;
  }

  const Case& c_;
  std::mt19937& random_;
  std::vector<float> u_;
  int spike_;
  uint64_t seed_, count_ = 0;
};

struct Problem {
  CudaAttentionShape shape;
  CudaAttentionArgs args;
  int rows = 0, longest = 0;
  Buffer q, out, keys, values, slices, tables, phi, workspace;
};

Problem make_problem(const Case& c, std::mt19937& random) {
  Problem p;
  CudaAttentionShape& s = p.shape;
  s = {c.kind, c.softmax, c.kv, c.heads, c.kv_heads, c.head_dim, c.block_size, static_cast<int>(c.slices.size())};
  std::vector<DeviceSlice> slices;
  int pages = 0;
  for (const auto& [rows, past] : c.slices) {
    slices.push_back({p.rows, rows, past, 0});
    p.rows += rows;
    s.max_rows = std::max(s.max_rows, rows);
    p.longest = std::max(p.longest, rows + past);
    pages += (rows + past + c.block_size - 1) / c.block_size;
  }
  s.total_rows = p.rows;
  std::vector<int32_t> order(pages + 3);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const int pitch = (p.longest + c.block_size - 1) / c.block_size + 2;
  std::vector<int32_t> tables(static_cast<size_t>(pitch) * s.sequences, -1);

  Maker maker(c, random);
  const int64_t kv_rows = static_cast<int64_t>(order.size()) * c.kv_heads * c.block_size;
  std::vector<uint8_t> keys(bytes_of(c.kv, kv_rows * c.head_dim), 0xff), values = keys;  // unused slots hold NaN
  int next = 0;
  for (int i = 0; i < s.sequences; ++i) {
    for (int position = 0; position < slices[i].past + slices[i].rows; ++position) {
      if (position % c.block_size == 0) tables[i * pitch + position / c.block_size] = order[next++];
      const int64_t page = tables[i * pitch + position / c.block_size];
      for (int head = 0; head < c.kv_heads; ++head) {
        const int64_t row = (page * c.kv_heads + head) * c.block_size + position % c.block_size;
        put_row(keys, c.kv, row, maker.key(position));
        put_row(values, c.kv, row, maker.value());
      }
    }
  }
  const int64_t width = static_cast<int64_t>(c.heads) * c.head_dim, stride = width + 2 * c.kv_heads * c.head_dim;
  std::vector<uint8_t> q(static_cast<size_t>(p.rows) * stride * plain_bytes(c.q), 0xff);
  for (int row = 0; row < p.rows; ++row) {
    for (int head = 0; head < c.heads; ++head) {
      const std::vector<float> x = maker.query();
      for (int i = 0; i < c.head_dim; ++i) put(q, c.q, row * stride + head * c.head_dim + i, x[i]);
    }
  }
  p.q = Buffer(q);
  p.keys = Buffer(keys);
  p.values = Buffer(values);
  p.slices = Buffer(slices);
  p.tables = Buffer(tables);
  p.phi = Buffer(std::vector<float>(c.heads, c.phi));
  p.out = Buffer(static_cast<size_t>(p.rows) * width * plain_bytes(c.out));
  CudaAttentionArgs& a = p.args;
  a.q = {p.q.data(), c.q, stride};
  a.out = {p.out.data(), c.out, width};
  a.keys = p.keys.data();
  a.values = p.values.data();
  a.slices = p.slices.as<DeviceSlice>();
  a.tables = p.tables.as<int32_t>();
  a.table_pitch = pitch;
  a.scale = 1 / std::sqrt(float(c.head_dim));
  a.softcap = c.softcap;
  a.window = c.window;
  a.phi = p.phi.as<float>();
  return p;
}

std::vector<float> reference(const Problem& p) {
  Buffer weights(static_cast<size_t>(p.rows) * p.shape.heads * p.longest * 8);
  Buffer out(static_cast<size_t>(p.rows) * p.shape.heads * p.shape.head_dim * 4);
  const ReferenceParams params{p.args, p.shape, weights.as<double>(), p.longest, out.as<float>()};
  reference_attention<<<p.rows * p.shape.heads, 128>>>(params);
  CHECK(cudaGetLastError());
  return out.host<float>();
}

std::vector<float> result(const Problem& p) {
  std::vector<float> out(p.out.bytes() / plain_bytes(p.args.out.dtype));
  with_type(p.args.out.dtype, [&](auto type) {
    const auto raw = p.out.host<uint8_t>();
    for (size_t i = 0; i < out.size(); ++i) {
      decltype(type) x;
      std::memcpy(&x, raw.data() + i * sizeof x, sizeof x);
      out[i] = static_cast<float>(x);
    }
    return 0;
  });
  return out;
}

// Error relative to the norm; the worst row counts tenfold, so that a single wrong row shows.
double distance(const std::vector<float>& out, const std::vector<float>& expected, int row_length) {
  double error = 0, norm = 0, worst = 0;
  for (size_t row = 0; row < out.size(); row += row_length) {
    double row_error = 0, row_norm = 0;
    for (size_t i = row; i < row + row_length; ++i) {
      row_error += (double(out[i]) - expected[i]) * (double(out[i]) - expected[i]);
      row_norm += double(expected[i]) * expected[i];
    }
    if (std::isnan(row_error)) return NAN;
    worst = std::max(worst, row_error / row_norm);
    error += row_error;
    norm += row_norm;
  }
  return std::max(std::sqrt(error / norm), std::sqrt(worst) / 10);
}

double tolerance(const Case& c) {
  if (c.kind == CudaAttentionKind::General) return 2e-5;
  return c.kv == DType::F16 && c.out != DType::BF16 ? 2e-3 : 1e-2;
}

// Gives every tile of a prompt its own block, even if the plan lets blocks take several.
void separate_tiles(CudaAttentionPlan& plan) {
  if (plan.can_run()) plan.grid = prefill_tiles(plan.shape, 128) * plan.shape.heads;
}

CudaAttentionPlan plan_of(const CudaAttentionShape& shape, const std::string& which, unsigned seed) {
  CudaAttentionPlan plan = which == "even" ? plan_even_attention(shape) : plan_cuda_attention(shape);
  if (which == "each") separate_tiles(plan);
  if (which == "even" && plan.can_run() && seed % 3 == 0) plan.grid = 1 + static_cast<int>(seed / 3 % plan.grid);
  return plan;
}

bool check_case(const Case& c, unsigned seed, const std::string& which) {
  std::mt19937 random(seed);
  Problem p = make_problem(c, random);
  const CudaAttentionPlan plan = plan_of(p.shape, which, seed);
  const std::string name = c.name + " " + name_of(c.softmax) + " " +
                           (c.kv == DType::F16    ? "f16"
                            : c.kv == DType::BF16 ? "bf16"
                                                  : "other") +
                           " d" + std::to_string(c.head_dim) + " data" + std::to_string(int(c.data));
  if (!plan.can_run()) {
    const bool hopper = c.kind == CudaAttentionKind::PrefillHopper && c.head_dim != 64 && c.head_dim != 128;
    const bool expected = hopper || (which == "even" && c.head_dim > 128);
    if (!expected) std::printf("  no kernel: %s\n", name.c_str());
    return expected;
  }
  p.workspace = Buffer(plan.workspace_bytes + 16);
  p.workspace.fill(0);
  p.args.workspace = p.workspace.data();
  const std::vector<float> expected = reference(p);
  bool good = true;
  for (int run = 0; run < 2; ++run) {  // the second run gets the workspace as the first left it
    p.out.fill(0xff);
    CHECK(launch_cuda_attention(plan, p.args, {}));
    CHECK(cudaDeviceSynchronize());
    const double error = distance(result(p), expected, c.head_dim);
    if (!(error <= tolerance(c))) {
      std::printf("  FAILED: %s (%d sequences, kind %d, seed %u, run %d): error %.3g\n", name.c_str(),
                  p.shape.sequences, int(c.kind), seed, run, error);
      good = false;
    }
  }
  return good;
}

std::vector<Case> cases_of(const std::string& which) {
  if (which == "decode") return decode_cases(CudaAttentionKind::Decode);
  if (which == "cluster" || which == "even") return decode_cases(CudaAttentionKind::DecodeCluster);
  if (which == "prefill") return prefill_cases(CudaAttentionKind::Prefill);
  if (which == "hopper" || which == "each") return prefill_cases(CudaAttentionKind::PrefillHopper);
  return general_cases();
}

int check_all(const std::string& which, size_t step) {
  const std::vector<Case> cases = cases_of(which);
  const unsigned seed = std::random_device{}();
  int failed = 0, checked = 0;
  for (size_t i = 0; i < cases.size(); i += step, ++checked)
    failed += check_case(cases[i], seed + static_cast<unsigned>(i), which) ? 0 : 1;
  std::printf("%s: %d cases, %d failed (seed %u)\n", which.c_str(), checked, failed, seed);
  return failed == 0 ? 0 : 1;
}

// A large problem with random contents; KV rotates through several copies, so that no launch finds its data in L2.
struct TimedProblem {
  CudaAttentionShape shape;
  CudaAttentionArgs args;
  int copies = 1;
  int64_t copy_elements = 0;
  Buffer q, out, keys, values, slices, tables, phi, workspace;
  CudaAttentionPlan plan;

  TimedProblem(CudaAttentionShape s, int rows, int past) {
    const int context = rows + past, pages_each = (context + s.block_size - 1) / s.block_size;
    const int pages = pages_each * s.sequences;
    copy_elements = static_cast<int64_t>(pages) * s.kv_heads * s.block_size * s.head_dim;
    copies = static_cast<int>(std::clamp<int64_t>(400'000'000 / (copy_elements * 4) + 1, 1, 24));
    s.max_rows = rows;
    s.total_rows = rows * s.sequences;
    shape = s;
    std::vector<DeviceSlice> host_slices;
    std::vector<int32_t> host_tables(pages);
    std::iota(host_tables.begin(), host_tables.end(), 0);
    std::shuffle(host_tables.begin(), host_tables.end(), std::mt19937(7));
    for (int i = 0; i < s.sequences; ++i) host_slices.push_back({i * rows, rows, past, 0});
    slices = Buffer(host_slices);
    tables = Buffer(host_tables);
    phi = Buffer(std::vector<float>(s.heads, 2.0f));
    keys = Buffer(copy_elements * copies * 2);
    values = Buffer(copy_elements * copies * 2);
    fill_random(keys.data(), s.kv, copy_elements * copies, 1);
    fill_random(values.data(), s.kv, copy_elements * copies, 2);
    const int64_t width = static_cast<int64_t>(s.heads) * s.head_dim, stride = width + 2 * s.kv_heads * s.head_dim;
    q = Buffer(static_cast<size_t>(s.total_rows) * stride * 2);
    out = Buffer(static_cast<size_t>(s.total_rows) * width * 2);
    fill_random(q.data(), s.kv, s.total_rows * stride, 3);
    plan = plan_cuda_attention(shape);
    workspace = Buffer(plan.workspace_bytes + 16);
    workspace.fill(0);
    args.q = {q.data(), s.kv, stride};
    args.out = {out.data(), s.kv, width};
    args.slices = slices.as<DeviceSlice>();
    args.tables = tables.as<int32_t>();
    args.table_pitch = pages_each;
    args.scale = 1 / std::sqrt(float(s.head_dim));
    args.phi = phi.as<float>();
    args.workspace = workspace.data();
    args.early = true;  // no other launch here writes this one's inputs
  }

  double time(bool programmatic) {
    if (!plan.can_run()) return 0;
    const int64_t bytes = copy_elements * 4;
    const int count = bytes > 200'000'000 ? 4 : 24;
    return time_in_graph(count, [&](CudaStream stream, int i) {
      CudaAttentionArgs a = args;
      a.keys = keys.as<uint16_t>() + copy_elements * (i % copies);
      a.values = values.as<uint16_t>() + copy_elements * (i % copies);
      CHECK(launch_cuda_attention(plan, a, {stream, programmatic}));
    });
  }
};

void time_decode() {
  struct Column {
    const char* name;
    CudaAttentionKind kind;
    Softmax softmax;
    bool programmatic;
  };
  const Column columns[] = {{"lazy", CudaAttentionKind::Decode, Softmax::Lazy, false},
                            {"cluster online", CudaAttentionKind::DecodeCluster, Softmax::Online, false},
                            {"cluster lazy", CudaAttentionKind::DecodeCluster, Softmax::Lazy, false},
                            {"cluster unified", CudaAttentionKind::DecodeCluster, Softmax::Unified, false},
                            {"lazy pdl", CudaAttentionKind::Decode, Softmax::Lazy, true},
                            {"cluster lazy pdl", CudaAttentionKind::DecodeCluster, Softmax::Lazy, true}};
  std::printf("decode, bf16, head 128, page 64: us (TB/s); pdl: launched programmatically\n%-18s", "case");
  for (const Column& column : columns) std::printf(" %16s", column.name);
  std::printf("\n");
  struct Row {
    int kv_heads, batch, context;
  };
  std::vector<Row> rows;
  for (int kv_heads : {32, 8}) {
    for (int batch : {1, 8, 32}) {
      for (int context : {1024, 4096, 16384}) {
        if (kv_heads * batch * context > 32 * 8 * 16384) continue;
        rows.push_back({kv_heads, batch, context});
      }
    }
  }
  for (Row r :
       {Row{8, 1, 128},   Row{8, 1, 192},   Row{8, 1, 256},    Row{8, 1, 512},   Row{8, 3, 128},   Row{8, 3, 256},
        Row{8, 3, 1024},  Row{8, 13, 4096}, Row{8, 48, 1024},  Row{8, 64, 1024}, Row{32, 5, 1000}, Row{32, 64, 1024},
        Row{32, 3, 1024}, Row{32, 7, 1024}, Row{32, 13, 1024}, Row{8, 5, 1024},  Row{8, 13, 1024}, Row{8, 20, 1024},
        Row{8, 20, 4096}, Row{8, 24, 1024}, Row{8, 40, 1024},  Row{32, 3, 4096}}) {
    rows.push_back(r);
  }
  for (const Row& r : rows) {
    char name[64];
    std::snprintf(name, sizeof name, "32/%d B%d L%d", r.kv_heads, r.batch, r.context);
    std::printf("%-18s", name);
    const double bytes = 4.0 * r.kv_heads * 128 * r.batch * r.context;
    for (const Column& column : columns) {
      CudaAttentionShape s;
      s.kind = column.kind;
      s.softmax = column.softmax;
      s.heads = 32;
      s.kv_heads = r.kv_heads;
      s.head_dim = 128;
      s.sequences = r.batch;
      s.max_context = r.context;
      const double us = TimedProblem(s, 1, r.context - 1).time(column.programmatic);
      std::printf("  %8.2f (%.2f)", us, bytes / us * 1e-6);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  for (int dim : {64, 80, 96, 256}) {
    CudaAttentionShape s;
    s.heads = 32;
    s.kv_heads = 8;
    s.head_dim = dim;
    s.sequences = 8;
    for (CudaAttentionKind kind : {CudaAttentionKind::Decode, CudaAttentionKind::DecodeCluster}) {
      s.kind = kind;
      const double us = TimedProblem(s, 1, 4095).time(false);
      std::printf("32/8 B8 L4096 d%d: %.2f (%.2f)\n", dim, us, 4.0 * 8 * dim * 8 * 4096 / us * 1e-6);
    }
  }
}

// A selection of shapes, to compare builds.
void time_brief(bool large) {
  struct Row {
    int kv_heads, batch, context;
  };
  std::vector<Row> rows = {{8, 1, 16384}, {8, 8, 16384}, {32, 8, 4096}, {32, 32, 4096}};
  if (!large) {
    rows.insert(rows.end(), {{8, 1, 128},
                             {8, 1, 1024},
                             {8, 1, 4096},
                             {8, 8, 1024},
                             {8, 8, 4096},
                             {8, 32, 1024},
                             {8, 48, 1024},
                             {32, 1, 1024},
                             {32, 5, 1000},
                             {32, 8, 1024},
                             {32, 1, 4096}});
  }
  for (const Row& r : rows) {
    std::printf("32/%d B%d L%d:", r.kv_heads, r.batch, r.context);
    for (int column = 0; column < 3; ++column) {
      CudaAttentionShape s;
      s.kind = column == 0 ? CudaAttentionKind::Decode : CudaAttentionKind::DecodeCluster;
      s.heads = 32;
      s.kv_heads = r.kv_heads;
      s.head_dim = 128;
      s.sequences = r.batch;
      const double us = TimedProblem(s, 1, r.context - 1).time(column == 2);
      std::printf("  %8.2f (%.2f)", us, 4.0 * r.kv_heads * 128 * r.batch * r.context / us * 1e-6);
    }
    std::printf("\n");
  }
}

void time_prefill(CudaAttentionKind kind) {
  std::printf("prefill, bf16, causal: us (TFLOP/s), %s\n", kind == CudaAttentionKind::Prefill ? "mma" : "hopper");
  struct Row {
    int kv_heads, dim, batch, rows, past;
  };
  for (const Row& r :
       {Row{32, 128, 1, 1024, 0}, Row{8, 128, 1, 1024, 0}, Row{8, 128, 1, 2048, 0}, Row{8, 128, 1, 4096, 0},
        Row{8, 128, 1, 8192, 0}, Row{32, 128, 4, 4096, 0}, Row{8, 128, 8, 1024, 0}, Row{8, 128, 1, 2048, 6144},
        Row{8, 64, 1, 4096, 0}, Row{8, 96, 1, 4096, 0}, Row{8, 256, 1, 4096, 0}}) {
    CudaAttentionShape s;
    s.heads = 32;
    s.kv_heads = r.kv_heads;
    s.head_dim = r.dim;
    s.sequences = r.batch;
    const double flops = 4.0 * 32 * r.dim * r.batch * (double(r.rows) * r.past + double(r.rows) * (r.rows + 1) / 2);
    std::printf("32/%d d%d B%d rows %d past %d:", r.kv_heads, r.dim, r.batch, r.rows, r.past);
    s.kind = kind;
    const double us = TimedProblem(s, r.rows, r.past).time(false);
    std::printf(" %9.1f (%.0f)\n", us, flops / us * 1e-6);
    std::fflush(stdout);
  }
}

double prompt_tflops(const std::string& which, int kv_heads, int rows, int past) {
  CudaAttentionShape s;
  s.kind = which.empty() ? CudaAttentionKind::Prefill : CudaAttentionKind::PrefillHopper;
  s.heads = 32;
  s.kv_heads = kv_heads;
  s.head_dim = 128;
  s.sequences = 1;
  TimedProblem problem(s, rows, past);
  if (which == "each") separate_tiles(problem.plan);
  const double us = problem.time(false);
  return 4.0 * 32 * 128 * (double(rows) * past + double(rows) * (rows + 1) / 2) / us * 1e-6;
}

void time_prompts(const std::string& which) {
  std::printf("one prompt, bf16, head 128: TFLOP/s at");
  for (int rows = 512; rows <= 16384; rows *= 2) std::printf(" %d", rows);
  std::printf(", 4096 behind 4096, 512 behind 7680\n");
  for (int kv_heads : {8, 32}) {
    std::printf("  32/%-2d", kv_heads);
    for (int rows = 512; rows <= 16384; rows *= 2) std::printf(" %6.0f", prompt_tflops(which, kv_heads, rows, 0));
    std::printf(" %6.0f", prompt_tflops(which, kv_heads, 4096, 4096));
    std::printf(" %6.0f\n", prompt_tflops(which, kv_heads, 512, 7680));
  }
}

void launch_prompt_once() {
  CudaAttentionShape s;
  s.kind = CudaAttentionKind::PrefillHopper;
  s.heads = 32;
  s.kv_heads = 8;
  s.head_dim = 128;
  s.sequences = 1;
  TimedProblem p(s, 8192, 0);
  p.args.keys = p.keys.data();
  p.args.values = p.values.data();
  for (int i = 0; i < 3; ++i) CHECK(launch_cuda_attention(p.plan, p.args, {}));
  CHECK(cudaDeviceSynchronize());
}

void launch_once() {
  struct Row {
    int kv_heads, batch, context;
  };
  for (const Row& r : {Row{8, 1, 1024}, Row{8, 8, 1024}, Row{8, 1, 16384}, Row{32, 8, 4096}, Row{8, 32, 4096}}) {
    CudaAttentionShape s;
    s.heads = 32;
    s.kv_heads = r.kv_heads;
    s.head_dim = 128;
    s.sequences = r.batch;
    TimedProblem p(s, 1, r.context - 1);
    p.args.keys = p.keys.data();
    p.args.values = p.values.data();
    CHECK(launch_cuda_attention(p.plan, p.args, {}));
    CHECK(cudaDeviceSynchronize());
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  using namespace millrace;
  const std::string what = argc > 1 ? argv[1] : "", which = argc > 2 ? argv[2] : "";
  if (what == "check") return bench::check_all(which, argc > 3 ? std::max(1, std::atoi(argv[3])) : 1);
  if (what == "decode") bench::time_decode();
  if (what == "prefill")
    bench::time_prefill(which == "hopper" ? CudaAttentionKind::PrefillHopper : CudaAttentionKind::Prefill);
  if (what == "prompts") bench::time_prompts(which);
  if (what == "brief") bench::time_brief(which == "large");
  if (what == "once") which == "prompt" ? bench::launch_prompt_once() : bench::launch_once();
  return 0;
}
