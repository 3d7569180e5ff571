// The small ops around attention on a CUDA device: each against a plain f64 one on the host, then times inside a graph.
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "harness.cuh"
#include "kernels/activation/cuda/launch.h"
#include "kernels/embedding/cuda/launch.h"
#include "kernels/norm/cuda/launch.h"
#include "kernels/rope/cuda/launch.h"

namespace millrace::bench {
namespace {

std::mt19937 random_engine;

double tolerance(DType dtype) { return dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 1e-3 : 6e-3; }

// A matrix on both sides; what the host has is what the device has, rounding included.
struct Both {
  int64_t rows, cols, stride;
  DType dtype;
  Buffer device;
  std::vector<float> host;

  Both(int64_t rows, int64_t cols, DType dtype, int64_t extra = 0, bool poison = false)
      : rows(rows), cols(cols), stride(cols + extra), dtype(dtype), device(rows * stride * plain_bytes(dtype)) {
    if (poison) {
      device.fill(0xff);
    } else {
      fill_random(device.data(), dtype, rows * stride, random_engine());
    }
    host = read();
  }
  std::vector<float> read() const {
    std::vector<float> out(rows * stride);
    const auto raw = device.host<uint8_t>();
    with_type(dtype, [&](auto type) {
      for (size_t i = 0; i < out.size(); ++i) {
        decltype(type) x;
        std::memcpy(&x, raw.data() + i * sizeof x, sizeof x);
        out[i] = static_cast<float>(x);
      }
      return 0;
    });
    return out;
  }
  double at(int64_t row, int64_t col) const { return host[row * stride + col]; }
  CudaMatrix matrix() const { return {device.data(), dtype, stride}; }
};

int failures = 0, checks = 0;

// `expected` has the shape of `got`, without the stride's extra columns.
void compare(const std::string& name, const Both& got, const std::vector<double>& expected, double limit) {
  CHECK(cudaDeviceSynchronize());
  const std::vector<float> out = got.read();
  double error = 0, norm = 1e-30;
  for (int64_t row = 0; row < got.rows; ++row) {
    for (int64_t col = 0; col < got.cols; ++col) {
      const double e = expected[row * got.cols + col], d = out[row * got.stride + col] - e;
      error += d * d;
      norm += e * e;
    }
  }
  ++checks;
  const double distance = std::sqrt(error / norm);
  if (distance <= limit) return;
  ++failures;
  std::printf("  FAILED: %s: error %.3g\n", name.c_str(), distance);
}

void check_norm(DType in, DType out, int rows, int cols, int groups, bool layer, bool residual, bool weighted) {
  Both x(rows, cols, in, 16), more(rows, cols, in), sum(rows, cols, in, 0, true), y(rows, cols, out, 8, true);
  Both weight(1, cols / groups, DType::F32), bias(1, cols / groups, DType::F32);
  CudaNormArgs args;
  args.x = x.matrix();
  if (residual) args.residual = more.matrix(), args.sum = sum.matrix();
  args.out = y.matrix();
  if (weighted) args.weight = weight.device.as<float>();
  if (layer) args.bias = bias.device.as<float>();
  args.layer = layer;
  args.rows = rows;
  args.cols = cols;
  args.groups = groups;
  CHECK(launch_cuda_norm(args, {}));
  std::vector<double> expected(rows * cols), sums(rows * cols);
  const int n = cols / groups;
  for (int row = 0; row < rows; ++row) {
    for (int begin = 0; begin < cols; begin += n) {
      double mean = 0, variance = 0;
      for (int i = begin; i < begin + n; ++i) {
        sums[row * cols + i] = x.at(row, i) + (residual ? more.at(row, i) : 0);
        if (layer) mean += sums[row * cols + i] / n;
      }
      for (int i = begin; i < begin + n; ++i) variance += std::pow(sums[row * cols + i] - mean, 2) / n;
      for (int i = begin; i < begin + n; ++i) {
        expected[row * cols + i] = (sums[row * cols + i] - mean) / std::sqrt(variance + args.epsilon) *
                                       (weighted ? weight.at(0, i - begin) : 1) +
                                   (layer ? bias.at(0, i - begin) : 0);
      }
    }
  }
  const std::string name = "norm " + std::to_string(rows) + "x" + std::to_string(cols) + "/" + std::to_string(groups);
  compare(name, y, expected, tolerance(out));
  if (residual) compare(name + " sum", sum, sums, tolerance(in));
}

double activate(Activation kind, double x) {
  if (kind == Activation::Silu) return x / (1 + std::exp(-x));
  if (kind == Activation::GeluTanh) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (kind == Activation::GeluErf) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return std::max(x, 0.0);
}

void check_activation(Activation kind, DType dtype, int rows, int cols, bool gated) {
  Both x(rows, cols, dtype, cols), gate(rows, cols, dtype), y(rows, cols, dtype, 0, true);
  CudaActivationArgs args;
  args.kind = kind;
  args.x = x.matrix();
  if (gated) args.gate_with = gate.matrix();
  args.out = y.matrix();
  args.rows = rows;
  args.cols = cols;
  CHECK(launch_cuda_activation(args, {}));
  std::vector<double> expected;
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) {
      expected.push_back(activate(kind, x.at(row, col)) * (gated ? gate.at(row, col) : 1));
    }
  }
  compare("activation " + std::to_string(int(kind)), y, expected, tolerance(dtype));
}

void check_gather(DType table_type, DType out_type, int cols, bool accumulate) {
  const int rows = 7, entries = 50;
  Both table(entries, cols, table_type), y(rows, cols, out_type);
  const std::vector<int32_t> ids = {3, 49, 0, 3, -1, 50, 17};
  const Buffer device_ids(ids);
  CudaGatherArgs args;
  args.table = table.matrix();
  args.ids = device_ids.as<int32_t>();
  args.entries = entries;
  args.scale = 1.5f;
  args.accumulate = accumulate;
  args.out = y.matrix();
  args.rows = rows;
  args.cols = cols;
  CHECK(launch_cuda_gather(args, {}));
  std::vector<double> expected;
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) {
      const bool known = ids[row] >= 0 && ids[row] < entries;
      expected.push_back((accumulate ? y.at(row, col) : 0) + (known ? table.at(ids[row], col) * 1.5 : 0));
    }
  }
  compare("gather", y, expected, tolerance(out_type));
}

struct RopeCase {
  RopeStyle style;
  DType io, kv;
  int head_dim, rotary_dim;
  bool norm;
};

double cached(const std::vector<uint8_t>& cache, DType kv, int64_t row, int head_dim, int i) {
  if (kv == DType::F32) {
    float x;
    std::memcpy(&x, cache.data() + (row * head_dim + i) * 4, 4);
    return x;
  }
  if (kv == DType::Q8_0) {
    const uint8_t* block = cache.data() + (row * head_dim + i) / 32 * 34;
    __half scale;
    std::memcpy(&scale, block, 2);
    return double(float(scale)) * static_cast<int8_t>(block[2 + i % 32]);
  }
  uint16_t bits;
  std::memcpy(&bits, cache.data() + (row * head_dim + i) * 2, 2);
  return kv == DType::F16 ? float(__ushort_as_half(bits)) : float(__ushort_as_bfloat16(bits));
}

// The head of `x` at (row, first column), normed and turned.
std::vector<double> turned(const RopeCase& c, const Both& x, int row, int first, const Both& weight, bool norm,
                           const std::vector<float>& angles) {
  std::vector<double> y(c.head_dim);
  double squares = 0;
  for (int i = 0; i < c.head_dim; ++i) y[i] = x.at(row, first + i), squares += y[i] * y[i] / c.head_dim;
  for (int i = 0; norm && i < c.head_dim; ++i) y[i] *= weight.at(0, i) / std::sqrt(squares + 1e-6);
  const int half = c.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const int a = c.style == RopeStyle::Halves ? i : 2 * i, b = c.style == RopeStyle::Halves ? i + half : 2 * i + 1;
    const double p = y[a], q = y[b], cosine = angles[row * c.rotary_dim + i],
                 sine = angles[row * c.rotary_dim + half + i];
    y[a] = p * cosine - q * sine;
    y[b] = q * cosine + p * sine;
  }
  return y;
}

void check_rope(const RopeCase& c) {
  const int heads = 6, kv_heads = 2, rows = 9, block_size = 16, pages = 8;
  const int q_width = heads * c.head_dim, kv_width = kv_heads * c.head_dim;
  Both qkv(rows, q_width + 2 * kv_width, c.io), weight(1, c.head_dim, DType::F32);
  const std::vector<DeviceSlice> slices = {{0, 5, 14, 0}, {5, 0, 3, 0}, {5, 3, 31, 0}};  // the last row is of no slice
  const std::vector<int32_t> tables = {4, 1, -1, 7, -1, -1, 6, 2, 5};
  const Buffer device_slices(slices), device_tables(tables), positions(rows * 4), slots(rows * 4);
  CudaRowsArgs places{device_slices.as<DeviceSlice>(), device_tables.as<int32_t>(), 3, 3, block_size, rows,
                      positions.as<int32_t>(),         slots.as<int32_t>()};
  CHECK(launch_cuda_rows(places, {}));
  std::vector<float> frequencies(c.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = float(std::pow(10000.0, -2.0 * double(i) / c.rotary_dim));
  const Buffer device_frequencies(frequencies), device_angles(size_t(rows) * c.rotary_dim * 4);
  CHECK(launch_cuda_angles(
      {positions.as<int32_t>(), device_frequencies.as<float>(), 1.25f, device_angles.as<float>(), rows, c.rotary_dim},
      {}));
  const std::vector<float> angles = device_angles.host<float>();
  const std::vector<int32_t> at = positions.host<int32_t>(), slot = slots.host<int32_t>();
  ++checks;
  if (at != std::vector<int32_t>{14, 15, 16, 17, 18, 31, 32, 33, 0} ||
      slot != std::vector<int32_t>{78, 79, 16, 17, 18, 47, 80, 81, -1} ||
      std::abs(angles[5 * c.rotary_dim + 1] - 1.25 * std::cos(31 * frequencies[1])) > 1e-5) {
    std::printf("  FAILED: rows or angles\n");
    ++failures;
  }
  const int64_t row_bytes = c.kv == DType::Q8_0 ? c.head_dim / 32 * 34 : c.head_dim * plain_bytes(c.kv);
  Buffer keys(pages * kv_heads * block_size * row_bytes), values(keys.bytes());
  CudaRopeWriteArgs args;
  args.style = c.style;
  args.q = qkv.matrix();
  args.k = args.v = args.q;
  args.k.data = qkv.device.as<uint8_t>() + q_width * plain_bytes(c.io);
  args.v.data = qkv.device.as<uint8_t>() + (q_width + kv_width) * plain_bytes(c.io);
  args.angles = device_angles.as<float>();
  args.rotary_dim = c.rotary_dim;
  if (c.norm) args.q_norm = args.k_norm = weight.device.as<float>();
  args.kv = c.kv;
  args.keys = keys.data();
  args.values = values.data();
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.head_dim = c.head_dim;
  args.block_size = block_size;
  args.row_slots = slots.as<int32_t>();
  args.rows = rows;
  CHECK(launch_cuda_rope_write(args, {}));

  std::vector<double> expected;
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (double y : turned(c, qkv, row, head * c.head_dim, weight, c.norm, angles)) expected.push_back(y);
    }
    for (int i = q_width; i < qkv.cols; ++i) expected.push_back(qkv.at(row, i));
  }
  compare("rope q", qkv, expected, tolerance(c.io));
  const auto stored_keys = keys.host<uint8_t>(), stored_values = values.host<uint8_t>();
  double error = 0, norm = 0;
  for (int row = 0; row + 1 < rows; ++row) {
    for (int head = 0; head < kv_heads; ++head) {
      const int64_t to = (slot[row] / block_size * kv_heads + head) * block_size + slot[row] % block_size;
      const auto k = turned(c, qkv, row, q_width + head * c.head_dim, weight, c.norm, angles);
      for (int i = 0; i < c.head_dim; ++i) {
        const double v = qkv.at(row, q_width + kv_width + head * c.head_dim + i);
        error += std::pow(cached(stored_keys, c.kv, to, c.head_dim, i) - k[i], 2);
        error += std::pow(cached(stored_values, c.kv, to, c.head_dim, i) - v, 2);
        norm += k[i] * k[i] + v * v;
      }
    }
  }
  ++checks;
  const double limit = c.kv == DType::Q8_0 ? 1e-2 : tolerance(c.kv);
  if (!(std::sqrt(error / norm) <= limit)) {
    std::printf("  FAILED: kv write, dtype %d, dim %d: %.3g\n", int(c.kv), c.head_dim, std::sqrt(error / norm));
    ++failures;
  }
}

void check_all() {
  for (DType in : {DType::F32, DType::BF16, DType::F16}) {
    for (DType out : {in, DType::BF16}) {
      for (int cols : {64, 576, 4096, 4100, 8192, 14336, 20000}) {
        check_norm(in, out, 5, cols, 1, false, false, true);
        check_norm(in, out, 3, cols, 1, false, true, true);
        check_norm(in, out, 3, cols, 1, true, true, false);
      }
      check_norm(in, out, 5, 32 * 128, 32, false, false, true);
      check_norm(in, out, 5, 32 * 80, 32, true, false, true);
    }
    for (Activation kind : {Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::Relu}) {
      check_activation(kind, in, 3, 1000, true);
      check_activation(kind, in, 3, 1001, false);
    }
    for (int cols : {576, 577}) check_gather(in, DType::F32, cols, false), check_gather(in, in, cols, true);
    for (RopeStyle style : {RopeStyle::Halves, RopeStyle::Interleaved}) {
      for (DType kv : {DType::F32, DType::BF16, DType::F16, DType::Q8_0}) {
        check_rope({style, in, kv, 128, 128, false});
        check_rope({style, in, kv, 64, 32, true});
        check_rope({style, in, kv, 96, 96, true});
      }
    }
  }
  std::printf("small ops: %d checks, %d failed\n", checks, failures);
}

void time_all() {
  std::printf("small ops, bf16, us inside a graph\n");
  for (int rows : {1, 8, 64, 4096}) {
    Both x(rows, 4096, DType::BF16), y(rows, 4096, DType::BF16), weight(1, 4096, DType::F32), r(rows, 4096, DType::F32);
    CudaNormArgs norm;
    norm.x = x.matrix(), norm.out = y.matrix(), norm.weight = weight.device.as<float>();
    norm.rows = rows, norm.cols = 4096;
    CudaNormArgs add = norm;
    add.residual = add.sum = r.matrix();
    Both gate_up(rows, 2 * 14336, DType::BF16), feed(rows, 14336, DType::BF16);
    CudaActivationArgs silu;
    silu.x = gate_up.matrix(), silu.gate_with = silu.x, silu.out = feed.matrix();
    silu.gate_with.data = gate_up.device.as<uint16_t>() + 14336;
    silu.rows = rows, silu.cols = 14336;
    Both qkv(rows, 6144, DType::BF16), cache(rows + 64, 2048, DType::BF16);
    const Buffer angles(std::vector<float>(size_t(rows) * 128, 0.5f));
    std::vector<int32_t> host_slots(rows);
    for (int i = 0; i < rows; ++i) host_slots[i] = i;
    const Buffer slots(host_slots);
    CudaRopeWriteArgs rope;
    rope.q = rope.k = rope.v = qkv.matrix();
    rope.k.data = qkv.device.as<uint16_t>() + 4096, rope.v.data = qkv.device.as<uint16_t>() + 5120;
    rope.angles = angles.as<float>(), rope.rotary_dim = 128;
    rope.keys = cache.device.data(), rope.values = cache.device.as<uint16_t>() + int64_t{rows + 64} * 1024;
    rope.heads = 32, rope.kv_heads = 8, rope.head_dim = 128, rope.row_slots = slots.as<int32_t>(), rope.rows = rows;
    std::printf("rows %d:", rows);
    for (bool programmatic : {false, true}) {
      const int n = 32;
      std::printf("  norm %.2f", time_in_graph(n, [&](CudaStream s, int) {
                    CHECK(launch_cuda_norm(norm, {s, programmatic}));
                  }));
      std::printf("  add+norm %.2f", time_in_graph(n, [&](CudaStream s, int) {
                    CHECK(launch_cuda_norm(add, {s, programmatic}));
                  }));
      std::printf("  silu*mul %.2f", time_in_graph(n, [&](CudaStream s, int) {
                    CHECK(launch_cuda_activation(silu, {s, programmatic}));
                  }));
      std::printf("  rope+write %.2f", time_in_graph(n, [&](CudaStream s, int) {
                    CHECK(launch_cuda_rope_write(rope, {s, programmatic}));
                  }));
      std::printf(programmatic ? " (pdl)\n" : "  |");
    }
  }
}

}  // namespace
}  // namespace millrace::bench

int main() {
  using namespace millrace::bench;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  random_engine.seed(seed);
  check_all();
  time_all();
  return failures == 0 ? 0 : 1;
}
