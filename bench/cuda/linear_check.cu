// Every linear kernel against plain f32 sums, on random data, with poisoned outputs.
#include "linear_check.h"

#include <cmath>
#include <set>
#include <string>

#include "kernels/linear/cuda/launch.h"
#include "reference_weights.h"

namespace millrace {
namespace {

constexpr int kPad = 8;  // padding columns of y, which must stay unchanged

__global__ void reference_products(const float* w, const float* x, int n, int k, int m, double* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= int64_t(n) * m) return;
  const int64_t row = i % n, token = i / n;
  double sum = 0;
  for (int j = 0; j < k; ++j) sum += double(w[row * k + j]) * double(x[token * k + j]);
  out[i] = sum;
}

struct Case {
  CudaLinearProblem problem;
  bool bias = false, squares = false;  // squares: also request the sum of squares of each row
};

float value_at(DType type, const uint8_t* data, size_t i) {
  if (type == DType::F32) return reinterpret_cast<const float*>(data)[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[i];
  if (type == DType::F16) return half_to_float(bits);
  return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits}));
}

void put_value(DType type, uint8_t* data, size_t i, float v) {
  if (type == DType::F32) {
    reinterpret_cast<float*>(data)[i] = v;
  } else {
    const uint16_t bits = type == DType::F16 ? float_to_half(v) : static_cast<__nv_bfloat16_raw>(__float2bfloat16(v)).x;
    reinterpret_cast<uint16_t*>(data)[i] = bits;
  }
}

template <class T>
void upload(const DeviceBuffer& to, const std::vector<T>& from) {
  CHECK(cudaMemcpy(to.as(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

// A matrix in the kernels' packed layout, for all cases of one shape.
struct Matrix {
  DType format;
  int64_t n, k;
  bool gate_up;
  std::vector<float> values;  // rows in packed order
  DeviceBuffer packed, device_values;

  Matrix(DType f, int64_t rows, int64_t columns, bool interleave, uint64_t seed)
      : format(f),
        n(rows),
        k(columns),
        gate_up(interleave),
        packed(packed_linear_bytes(f, rows, columns)),
        device_values(static_cast<size_t>(rows * columns) * 4) {
    const ReferenceWeights w = random_weights(f, n, k, seed);
    const DeviceBuffer file(w.file.size());
    upload(file, w.file);
    CHECK(cudaMemset(packed.as(), 0, packed.bytes()));
    values.resize(w.values.size());
    const int parts = gate_up ? 2 : 1;
    const int64_t part_rows = n / parts;
    for (int part = 0; part < parts; ++part) {
      const RowPlacement placement{part * kGateUpGroup, parts * kGateUpGroup};
      const size_t part_bytes = w.file.size() / static_cast<size_t>(parts);
      CHECK(pack_linear(f, file.as<uint8_t>() + static_cast<size_t>(part) * part_bytes, part_rows, f, n, k, placement,
                        packed.as(), nullptr));
      for (int64_t r = 0; r < part_rows; ++r) {
        const int64_t to = placement.first + r / kGateUpGroup * placement.step + r % kGateUpGroup;
        std::copy_n(w.values.begin() + (part * part_rows + r) * k, k, values.begin() + to * k);
      }
    }
    upload(device_values, values);
    CHECK(cudaDeviceSynchronize());
  }
};

// The expected y before rounding, in rows of `columns`; `old` is the initial y for accumulation.
std::vector<double> expected(const Case& c, const std::vector<double>& products, const std::vector<float>& bias,
                             const std::vector<float>& old) {
  const CudaLinearProblem& p = c.problem;
  const auto n = static_cast<size_t>(p.n), m = static_cast<size_t>(p.m), columns = p.gate_up ? n / 2 : n;
  std::vector<double> y(m * columns);
  const auto sum = [&](size_t token, size_t row) {
    return products[token * n + row] + (c.bias ? double(bias[row]) : 0);
  };
  for (size_t token = 0; token < m; ++token) {
    for (size_t j = 0; j < columns; ++j) {
      double v = 0;
      if (p.gate_up) {
        const size_t row = j / 8 * 16 + j % 8;
        const double gate = sum(token, row);
        v = gate / (1 + std::exp(-gate)) * sum(token, row + 8);
      } else {
        v = sum(token, j);
      }
      y[token * columns + j] = v + (p.accumulate ? double(old[token * columns + j]) : 0);
    }
  }
  return y;
}

// The error from rounding y and from the kernel's own roundings. packed-wgmma and packed-flat scale weights to bf16
// before they multiply; others keep weights exact, but their sums are up to a thousand times larger on the way.
double tolerance(const CudaLinearProblem& p, const CudaLinearKernel& kernel) {
  const double stored = p.y == DType::F32 ? 2e-5 : p.y == DType::F16 ? 6e-4 : 4e-3;
  if (kernel.name == "packed-wgmma" || kernel.name == "packed-flat")
    return stored + (p.gate_up ? 1.2e-2 : 6e-3);  // a product of two such sums
  return is_quantized(p.format) ? stored + 1e-4 : stored;
}

class Checker {
 public:
  Checker(const CudaLimits& limits, const KernelFilter& filter) : limits_(limits), filter_(filter) {}

  void check(const Case& c, const Matrix& w, uint64_t seed) {
    const CudaLinearProblem& p = c.problem;
    const auto n = static_cast<size_t>(p.n), m = static_cast<size_t>(p.m), k = static_cast<size_t>(p.k);
    const size_t columns = p.gate_up ? n / 2 : n, stride = columns + kPad, size = p.y == DType::F32 ? 4 : 2;
    const size_t x_stride = (k + 15) / 8 * 8;
    std::vector<float> x(m * k), bias(n), old(m * columns);
    std::vector<uint8_t> x_bytes(m * x_stride * 2, 0xff);  // NaN padding between rows, which must not be read as x
    for (size_t i = 0; i < m * k; ++i) {
      put_value(p.x, x_bytes.data(), i / k * x_stride + i % k, random_float(seed, i, 1));
      x[i] = value_at(p.x, x_bytes.data(), i / k * x_stride + i % k);
    }
    for (size_t i = 0; i < n; ++i) bias[i] = random_float(seed + 1, i, 1);
    std::vector<uint8_t> y_bytes(m * stride * size, 0xff);
    if (p.accumulate) {
      for (size_t i = 0; i < old.size(); ++i) {
        put_value(p.y, y_bytes.data(), i / columns * stride + i % columns, random_float(seed + 2, i, 1));
        old[i] = value_at(p.y, y_bytes.data(), i / columns * stride + i % columns);
      }
    }
    const DeviceBuffer dx(x.size() * 4), dxb(x_bytes.size()), dbias(n * 4), dy(y_bytes.size()), dref(m * n * 8),
        dss(m * 4);
    upload(dx, x);
    upload(dxb, x_bytes);
    upload(dbias, bias);
    reference_products<<<unsigned((m * n + 127) / 128), 128>>>(w.device_values.as<float>(), dx.as<float>(), int(n),
                                                               int(k), int(m), dref.as<double>());
    CHECK(cudaGetLastError());
    std::vector<double> products(m * n);
    CHECK(cudaMemcpy(products.data(), dref.as(), products.size() * 8, cudaMemcpyDeviceToHost));
    const std::vector<double> want = expected(c, products, bias, old);

    for (const CudaLinearKernel& kernel : cuda_linear_kernels()) {
      if (!filter_.wants(kernel) || !kernel.can_run(p, limits_)) continue;
      for (const bool overlap : {false, true}) {
        upload(dy, y_bytes);
        CHECK(cudaMemset(dss.as(), 0, m * 4));
        CudaLinearArgs args{dxb.as(),
                            int64_t(x_stride),
                            w.packed.as(),
                            c.bias ? dbias.as<float>() : nullptr,
                            dy.as(),
                            int64_t(stride),
                            c.squares ? dss.as<float>() : nullptr};
        CudaStep step;
        step.overlap = overlap && limits_.capability >= 90;
        const cudaError_t launched = kernel.run(p, args, limits_, step);
        const cudaError_t ran = launched == cudaSuccess ? cudaDeviceSynchronize() : launched;
        if (ran != cudaSuccess) {
          report(c, kernel, cudaGetErrorString(ran));
          cudaGetLastError();
          if (cudaDeviceSynchronize() != cudaSuccess) {
            std::printf("the device is lost; stopping the checks\n");
            std::exit(1);
          }
          continue;
        }
        compare(c, kernel, want, y_bytes, dy, dss, stride, columns, m);
      }
    }
  }

  int checks() const { return checks_; }
  int failures() const { return failures_; }
  const std::set<std::string>& kernels() const { return kernels_; }

 private:
  void compare(const Case& c, const CudaLinearKernel& kernel, const std::vector<double>& want,
               const std::vector<uint8_t>& before, const DeviceBuffer& dy, const DeviceBuffer& dss, size_t stride,
               size_t columns, size_t m) {
    const DType type = c.problem.y;
    std::vector<uint8_t> got(before.size());
    std::vector<float> squares(m);
    CHECK(cudaMemcpy(got.data(), dy.as(), got.size(), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(squares.data(), dss.as(), m * 4, cudaMemcpyDeviceToHost));
    double error = 0, norm = 0, square_error = 0;
    for (size_t token = 0; token < m; ++token) {
      double row_norm = 0;
      for (size_t j = 0; j < columns; ++j) {
        const double g = value_at(type, got.data(), token * stride + j), w = want[token * columns + j];
        error += (g - w) * (g - w);
        row_norm += w * w;
      }
      norm += row_norm;
      if (!c.squares) continue;
      square_error =
          std::fmax(square_error, std::isnan(squares[token]) ? 1 : std::fabs(squares[token] - row_norm) / row_norm);
    }
    const size_t size = type == DType::F32 ? 4 : 2;
    bool outside = false;
    for (size_t token = 0; token < m; ++token) {
      for (size_t i = (token * stride + columns) * size; i < (token + 1) * stride * size; ++i) {
        outside = outside || got[i] != before[i];
      }
    }
    const double relative = std::sqrt(error / norm);
    ++checks_;
    kernels_.insert(std::string(kernel.name));
    char text[160];
    const double allowed = tolerance(c.problem, kernel);
    if (!(relative <= allowed) || outside || !(square_error < std::max(1e-3, 25 * allowed))) {
      std::snprintf(text, sizeof text, "error %.3g of %.3g%s, squares off by %.3g", relative, allowed,
                    outside ? ", wrote outside of y" : "", square_error);
      report(c, kernel, text);
    }
  }

  void report(const Case& c, const CudaLinearKernel& kernel, const char* what) {
    if (++failures_ > 60) return;
    const CudaLinearProblem& p = c.problem;
    std::printf("FAIL %.*s format %d y %d n=%lld k=%lld m=%lld%s%s%s: %s\n", int(kernel.name.size()),
                kernel.name.data(), int(p.format), int(p.y), (long long)p.n, (long long)p.k, (long long)p.m,
                p.accumulate ? " acc" : "", p.gate_up ? " gate_up" : "", c.bias ? " bias" : "", what);
  }

  CudaLimits limits_;
  KernelFilter filter_;
  int checks_ = 0, failures_ = 0;
  std::set<std::string> kernels_;
};

struct Shape {
  int64_t n, k;
  bool gate_up;
};

void check_format(Checker& checker, DType format, const std::vector<Shape>& shapes, const std::vector<int64_t>& ms,
                  uint64_t& seed) {
  for (const Shape& s : shapes) {
    const Matrix w(format, s.n, s.k, s.gate_up, ++seed);
    for (const int64_t m : ms) {
      Case c;
      c.problem.format = format;
      c.problem.x = format == DType::F16 ? DType::F16 : DType::BF16;
      constexpr DType kOutputs[3] = {DType::F32, DType::BF16, DType::F16};
      ++seed;
      c.problem.y = kOutputs[seed % 3];
      c.problem.n = s.n;
      c.problem.k = s.k;
      c.problem.m = m;
      c.problem.gate_up = s.gate_up;
      c.problem.accumulate = seed % 2 == 0 && !s.gate_up;
      c.bias = seed / 2 % 2 == 0;
      c.squares = seed / 4 % 2 == 0;
      checker.check(c, w, seed * 77);
    }
  }
}

void check_unpack(DType format, int64_t n, int64_t k, uint64_t seed, int& failures) {
  const Matrix w(format, n, k, false, seed);
  const int64_t first = 16, rows = n - 16, stride = packed_linear_stride(k);
  const DeviceBuffer out(static_cast<size_t>(rows * stride) * 2);
  CHECK(unpack_linear(format, w.packed.as(), n, k, first, rows, out.as(), nullptr));
  std::vector<uint8_t> got(out.bytes());
  CHECK(cudaMemcpy(got.data(), out.as(), got.size(), cudaMemcpyDeviceToHost));
  double error = 0, norm = 0;
  for (int64_t i = 0; i < rows * k; ++i) {
    const double g = value_at(DType::BF16, got.data(), size_t(i / k * stride + i % k)),
                 v = w.values[size_t(first * k + i)];
    error += (g - v) * (g - v);
    norm += v * v;
  }
  if (!(std::sqrt(error / norm) < 4e-3)) {
    ++failures;
    std::printf("FAIL unpack format %d: error %.3g\n", int(format), std::sqrt(error / norm));
  }
}

}  // namespace

int check_linear(const CudaLimits& limits, const KernelFilter& filter, uint64_t seed) {
  std::printf("checks, seed %llu\n", (unsigned long long)seed);
  Checker checker(limits, filter);
  const std::vector<Shape> plain{{1024, 4096, false}, {1000, 1192, false}, {96, 72, false},
                                 {250, 4104, false},  {7, 512, false},     {1536, 1088, true}};
  const std::vector<int64_t> many{1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 31, 48, 64, 65, 100, 128, 200, 256, 300};
  check_format(checker, DType::BF16, plain, many, seed);
  check_format(checker, DType::F16, {{520, 1096, false}, {256, 640, true}}, {1, 3, 7, 12, 29, 64, 130, 256}, seed);
  // More rows than divide evenly over the warps of a wave.
  check_format(checker, DType::BF16, {{5392, 6152, true}, {2120, 3592, false}, {6000, 2048, false}}, {1, 3}, seed);
  check_format(checker, DType::F16, {{5392, 4104, true}, {2504, 8200, false}}, {1}, seed);
  check_format(checker, DType::BF16, {{33, 77, false}}, {1, 5, 9}, seed);  // a K that only "rows" accepts
  const std::vector<Shape> packed{
      {528, 2048, false}, {1000, 512, false}, {32, 4096, true}, {272, 2816, false}, {48, 14336, false}};
  const std::vector<int64_t> few{1, 2, 3, 4, 5, 8, 13, 16, 17, 32, 48, 100, 300};
  int unpack_failures = 0;
  for (const DType f : {DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q4_K, DType::Q5_K,
                        DType::Q6_K, DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4}) {
    check_format(checker, f, packed, few, seed);
    if (block_shape(f).elements == 32) check_format(checker, f, {{64, 576, false}}, {1, 6, 20, 70}, seed);
    check_unpack(f, 100, 768, ++seed, unpack_failures);
  }
  std::printf("%d checks, %d failures; kernels:", checker.checks(), checker.failures() + unpack_failures);
  for (const std::string& name : checker.kernels()) std::printf(" %s", name.c_str());
  std::printf("\n");
  return checker.failures() + unpack_failures;
}

}  // namespace millrace
