// What cuDNN's attention for prompts would cost as a candidate: loading it, a plan for each length, and the time over our pages.
// Needs the headers of nvidia-cudnn-frontend (PyPI): see part `cudnn` of prompt.sh.
#include <cuda_bf16.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

namespace {

namespace fe = cudnn_frontend;
using Element = __nv_bfloat16;
using Clock = std::chrono::steady_clock;

constexpr int kPage = 64, kDim = 128, kLongest = 16384, kPages = 4 * kLongest / kPage;
enum Tensor : int64_t { kQ = 1, kK, kV, kTable, kTableV, kRows, kKeys, kOut };

template <class Status>
void check(Status status, const char* doing) {
  if (int(status) == 0) return;
  std::printf("status %d while %s\n", int(status), doing);
  std::exit(1);
}

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

long resident_megabytes() {
  long size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * 4 / 1024;
}

struct Shape {
  int heads, kv_heads, rows, keys;
};

struct Plan {
  fe::graph::Graph graph;
  int64_t workspace = 0;

  // False where cuDNN has no kernel for it.
  bool build(cudnnHandle_t handle, const Shape& s) {
    using Attributes = fe::graph::Tensor_attributes;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16).set_compute_data_type(fe::DataType_t::FLOAT);
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT);
    auto tensor = [&](Tensor id, std::vector<int64_t> dim, std::vector<int64_t> stride, fe::DataType_t type) {
      return graph.tensor(Attributes().set_uid(id).set_dim(dim).set_stride(stride).set_data_type(type));
    };
    const int64_t width = int64_t{s.heads} * kDim, page = int64_t{kPage} * kDim, pages = (s.keys + kPage - 1) / kPage;
    const std::vector<int64_t> rows{1, s.heads, s.rows, kDim}, row_stride{s.rows * width, kDim, width, 1};
    const std::vector<int64_t> kv{kPages, s.kv_heads, kPage, kDim}, kv_stride{s.kv_heads * page, page, kDim, 1};
    auto q = tensor(kQ, rows, row_stride, fe::DataType_t::BFLOAT16);
    auto k = tensor(kK, kv, kv_stride, fe::DataType_t::BFLOAT16);
    auto v = tensor(kV, kv, kv_stride, fe::DataType_t::BFLOAT16);
    auto table = [&](Tensor id) { return tensor(id, {1, 1, pages, 1}, {pages, pages, 1, 1}, fe::DataType_t::INT32); };
    auto length = [&](Tensor id) { return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT32); };
    fe::graph::SDPA_attributes attention;
    attention.set_generate_stats(false).set_attn_scale(1 / std::sqrt(float(kDim))).set_causal_mask_bottom_right(true);
    attention.set_padding_mask(true).set_seq_len_q(length(kRows)).set_seq_len_kv(length(kKeys));
    attention.set_paged_attention_k_table(table(kTable)).set_paged_attention_v_table(table(kTableV));
    attention.set_paged_attention_max_seq_len_kv(s.keys);
    auto [out, unused] = graph.sdpa(q, k, v, attention);
    out->set_output(true).set_uid(kOut).set_dim(rows).set_stride(row_stride);
    auto built = graph.build(handle, {fe::HeurMode_t::A});
    if (built.is_bad()) std::printf("no plan: %s\n", built.get_message().c_str());
    return built.is_good() && graph.get_workspace_size(workspace).is_good();
  }
};

struct Data {
  Element *q, *k, *v, *out;
  int32_t *table, *lengths;  // rows, keys

  Data() {
    const size_t rows = size_t{kLongest} * 32 * kDim, kv = size_t{kPages} * 32 * kPage * kDim;
    for (auto [data, size] : {std::pair{&q, rows}, {&out, rows}, {&k, kv}, {&v, kv}}) {
      check(cudaMalloc(data, size * sizeof(Element)), "allocating");
      fill(*data, size);
    }
    check(cudaMalloc(&table, kPages * sizeof(int32_t)), "allocating");
    check(cudaMalloc(&lengths, 2 * sizeof(int32_t)), "allocating");
    std::vector<int32_t> shuffled(kPages);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    check(cudaMemcpy(table, shuffled.data(), kPages * sizeof(int32_t), cudaMemcpyHostToDevice), "copying");
  }
  void fill(Element* to, size_t size) {
    std::normal_distribution<float> normal;
    std::vector<Element> some(1 << 22);  // divides all sizes
    for (Element& x : some) x = __float2bfloat16(normal(random));
    for (size_t i = 0; i < size; i += some.size()) {
      check(cudaMemcpy(to + i, some.data(), some.size() * sizeof(Element), cudaMemcpyHostToDevice), "copying");
    }
  }
  std::unordered_map<int64_t, void*> pack(int first_page) const {
    return {{kQ, q}, {kK, k}, {kV, v}, {kTable, table + first_page}, {kTableV, table + first_page},
            {kRows, lengths}, {kKeys, lengths + 1}, {kOut, out}};
  }
  std::mt19937 random{std::random_device{}()};
};

// The median of launches over pages that are not in the cache.
double microseconds(cudnnHandle_t handle, cudaStream_t stream, Plan& plan, const Shape& s, const Data& data) {
  const int32_t lengths[2] = {s.rows, s.keys};
  check(cudaMemcpy(data.lengths, lengths, sizeof lengths, cudaMemcpyHostToDevice), "copying");
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, std::max<int64_t>(plan.workspace, 1)), "allocating");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "timing"), check(cudaEventCreate(&end), "timing");
  std::vector<float> times(25);
  const int pages = s.keys / kPage;
  for (size_t i = 0; i < times.size(); ++i) {
    auto pack = data.pack(int(i) * pages % (kPages - pages + 1));
    check(cudaEventRecord(begin, stream), "timing");
    if (plan.graph.execute(handle, pack, workspace).is_bad()) check(1, "running a plan");
    check(cudaEventRecord(end, stream), "timing");
    check(cudaStreamSynchronize(stream), "running a plan");
    check(cudaEventElapsedTime(&times[i], begin, end), "timing");
  }
  cudaFree(workspace);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2] * 1e3;
}

}  // namespace

int main() {
  check(cudaFree(nullptr), "starting");
  const Data data;
  const long before = resident_megabytes();
  auto begin = Clock::now();
  cudnnHandle_t handle;
  check(cudnnCreate(&handle), "starting cuDNN");
  std::printf("cuDNN %zu: a handle in %.0f ms\n", cudnnGetVersion(), milliseconds_since(begin));
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting"), check(cudnnSetStream(handle, stream), "starting cuDNN");
  std::printf("%8s %6s %6s %8s %9s %8s\n", "kv heads", "rows", "past", "plan ms", "us", "TFLOP/s");
  for (int kv_heads : {8, 32}) {
    for (auto [rows, past] : {std::pair{128, 0}, {512, 0}, {512, 1536}, {1024, 0}, {2048, 0}, {4096, 0}, {8192, 0},
                              {4096, 4096}, {512, 7680}}) {
      const Shape shape{32, kv_heads, rows, rows + past};
      Plan plan;
      begin = Clock::now();
      if (!plan.build(handle, shape)) continue;
      const double built = milliseconds_since(begin), us = microseconds(handle, stream, plan, shape, data);
      const double products = 4.0 * shape.heads * kDim * rows * (past + (rows + 1) / 2.0);
      std::printf("%8d %6d %6d %8.1f %9.1f %8.0f\n", kv_heads, rows, past, built, us, products / us / 1e6);
    }
  }
  std::printf("%ld MB of the host's memory\n", resident_megabytes() - before);
}
