// llama.cpp's decode speed with some experts in host memory, over its C interface:
//
//   llama_offload MODEL LAYERS HOST DEPTH GENERATE ROUNDS THREADS...
//
// All layers are on the GPU (-ngl 99), but the experts of the first LAYERS are not (--n-cpu-moe LAYERS). HOST is how
// the host keeps them: "mapped" in the file, "pinned" in memory of the CUDA driver (--load-mode none), or "repacked"
// for the CPU's kernels (--no-host). Each round prints "THREADS tokens/s" for each number of threads. As in
// llama-bench, every step takes a random token. The sizes of buffers go to stderr as llama.cpp logs them.
// scripts/llama_cpp.py compiles this file against llama.cpp's headers.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "llama_offload: %s\n", why.c_str());
  std::exit(1);
}

struct Session {
  llama_model* model;
  llama_context* context;
};

Session open(const std::string& file, int layers, const std::string& host, int32_t positions) {
  std::vector<std::string> patterns;
  for (int i = 0; i < layers; ++i)
    patterns.push_back("blk\\." + std::to_string(i) + "\\.ffn_(up|down|gate|gate_up)_(ch|)exps");
  std::vector<llama_model_tensor_buft_override> overrides;
  for (const auto& pattern : patterns) overrides.push_back({pattern.c_str(), ggml_backend_cpu_buffer_type()});
  overrides.push_back({nullptr, nullptr});
  auto params = llama_model_default_params();
  params.n_gpu_layers = 99;
  params.tensor_buft_overrides = overrides.data();
  params.load_mode = host == "mapped" ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
  params.no_host = host == "repacked";
  llama_model* model = llama_model_load_from_file(file.c_str(), params);
  if (model == nullptr) stop("does not load " + file);
  auto context_params = llama_context_default_params();
  context_params.n_ctx = static_cast<uint32_t>(positions);
  llama_context* context = llama_init_from_model(model, context_params);
  if (context == nullptr) stop("makes no context for " + file);
  return {model, context};
}

class Sequence {
 public:
  explicit Sequence(const Session& s) : session_(s), vocab_(llama_vocab_n_tokens(llama_model_get_vocab(s.model))) {}

  // Computes so many random tokens in one step, behind those that are there.
  void add(int32_t count) {
    auto batch = llama_batch_init(count, 0, 1);
    for (int32_t i = 0; i < count; ++i) {
      batch.token[i] = static_cast<llama_token>(random_() % static_cast<uint32_t>(vocab_));
      batch.pos[i] = length_++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = i + 1 == count;
    }
    batch.n_tokens = count;
    if (llama_decode(session_.context, batch) != 0) stop("llama_decode failed");
    llama_synchronize(session_.context);
    llama_batch_free(batch);
  }

  void cut(int32_t length) {
    llama_memory_seq_rm(llama_get_memory(session_.context), 0, length, -1);
    length_ = length;
  }

 private:
  const Session& session_;
  int32_t vocab_, length_ = 0;
  std::mt19937 random_{1};
};

double decode_rate(Sequence& sequence, int32_t depth, int32_t count) {
  using Clock = std::chrono::steady_clock;
  sequence.cut(depth);
  const auto begin = Clock::now();
  for (int32_t i = 0; i < count; ++i) sequence.add(1);
  return count / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  const auto number = [&](size_t i) { return std::atoi(a.at(i).c_str()); };
  if (a.size() < 7) stop("MODEL LAYERS HOST DEPTH GENERATE ROUNDS THREADS...; see the head of llama_offload.cpp");
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR || std::strstr(text, "buffer size") != nullptr) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  const int32_t depth = number(3), generate = number(4);
  const Session session = open(a[0], number(1), a[2], std::max(512, depth + generate));
  Sequence sequence(session);
  if (depth > 0) sequence.add(depth);
  for (int round = -1; round < number(5); ++round) {  // the first one warms up
    for (size_t i = 6; i < a.size(); ++i) {
      llama_set_n_threads(session.context, number(i), number(i));
      const double rate = decode_rate(sequence, depth, generate);
      if (round >= 0) std::printf("%d %.2f\n", number(i), rate);
    }
    std::fflush(stdout);
  }
}
