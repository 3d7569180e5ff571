// What the comparisons with llama.cpp need of it, over its C interface:
//
//   llama_peer logits MODEL THREADS CONTEXT exact|default TOKENS OUT   f32 logits of every position, in windows of
//   CONTEXT llama_peer bench MODEL THREADS PROMPT GENERATE ROUNDS              tokens/s of each round llama_peer embed
//   MODEL THREADS SEQUENCES LENGTH ROUNDS             sequences/s of each round llama_peer vectors MODEL THREADS TOKENS
//   the embedding of each line of token ids
//
// "exact" has an f32 KV cache and no flash attention; "default" is what a user gets. TOKENS is a file of ids.
// scripts/llama_cpp.py compiles this file against llama.cpp's headers.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "llama_peer: %s\n", why.c_str());
  std::exit(1);
}

struct Session {
  llama_model* model;
  llama_context* context;
  int32_t vocab;
};

// Batches are whole: a step takes all the tokens that one call passes, as llama-bench's default of 512 does for prompts
// up to 512.
Session open(const std::string& file, int threads, uint32_t tokens, bool exact, uint32_t sequences, bool embeddings) {
  const auto model = llama_model_load_from_file(file.c_str(), [] {
    auto params = llama_model_default_params();
    params.n_gpu_layers = 0;
    return params;
  }());
  if (model == nullptr) stop("does not load " + file);
  auto params = llama_context_default_params();
  params.n_ctx = tokens;
  params.n_batch = tokens;
  params.n_ubatch = embeddings || exact ? tokens : std::min<uint32_t>(tokens, 512);
  params.n_seq_max = sequences;
  params.n_threads = params.n_threads_batch = threads;
  params.embeddings = embeddings;
  if (exact) {
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
  }
  const auto context = llama_init_from_model(model, params);
  if (context == nullptr) stop("makes no context for " + file);
  return {model, context, llama_vocab_n_tokens(llama_model_get_vocab(model))};
}

void clear(const Session& s) {
  if (const auto memory = llama_get_memory(s.context)) llama_memory_clear(memory, true);
}

void add(llama_batch& batch, llama_token token, int32_t position, int32_t sequence, bool wanted) {
  const int32_t i = batch.n_tokens++;
  batch.token[i] = token;
  batch.pos[i] = position;
  batch.n_seq_id[i] = 1;
  batch.seq_id[i][0] = sequence;
  batch.logits[i] = wanted;
}

void decode(const Session& s, const llama_batch& batch) {
  if (llama_decode(s.context, batch) != 0) stop("llama_decode failed");
}

void logits(const std::string& file, int threads, int32_t window, bool exact, const std::string& ids,
            const std::string& out) {
  std::ifstream in(ids);
  std::vector<llama_token> tokens;
  for (llama_token token; in >> token;) tokens.push_back(token);
  const auto s = open(file, threads, static_cast<uint32_t>(window), exact, 1, false);
  std::ofstream written(out, std::ios::binary);
  auto batch = llama_batch_init(window, 0, 1);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(window)) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(window));
    batch.n_tokens = 0;
    for (size_t i = begin; i < end; ++i) add(batch, tokens[i], static_cast<int32_t>(i - begin), 0, true);
    clear(s);
    decode(s, batch);
    for (int32_t i = 0; i < batch.n_tokens; ++i)
      written.write(reinterpret_cast<const char*>(llama_get_logits_ith(s.context, i)),
                    s.vocab * int64_t{sizeof(float)});
  }
  if (!written) stop("cannot write " + out);
}

double seconds(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void bench(const std::string& file, int threads, int32_t prompt, int32_t generate, int rounds) {
  const auto s = open(file, threads, static_cast<uint32_t>(std::max(prompt, 1) + generate), false, 1, false);
  std::mt19937 random(1);
  auto batch = llama_batch_init(std::max(prompt, 1), 0, 1);
  const auto any = [&] { return static_cast<llama_token>(random() % static_cast<uint32_t>(s.vocab)); };
  const auto run_prompt = [&] {
    clear(s);
    batch.n_tokens = 0;
    for (int32_t i = 0; i < prompt; ++i) add(batch, any(), i, 0, i + 1 == prompt);
    decode(s, batch);
    llama_synchronize(s.context);
  };
  const auto run_decode = [&](int32_t count) {
    clear(s);
    for (int32_t i = 0; i < count; ++i) {
      batch.n_tokens = 0;
      add(batch, any(), i, 0, true);
      decode(s, batch);
      llama_synchronize(s.context);
    }
  };
  run_decode(2);
  for (int round = 0; round < rounds; ++round) {
    if (prompt > 0) std::printf("pp%d %.2f\n", prompt, prompt / seconds(run_prompt));
    if (generate > 0) std::printf("tg%d %.2f\n", generate, generate / seconds([&] { run_decode(generate); }));
    std::fflush(stdout);
  }
}

void encode(const Session& s, const llama_batch& batch) {
  clear(s);
  if (llama_encode(s.context, batch) != 0) stop("llama_encode failed");
}

void embed(const std::string& file, int threads, int32_t sequences, int32_t length, int rounds) {
  const auto s =
      open(file, threads, static_cast<uint32_t>(sequences * length), false, static_cast<uint32_t>(sequences), true);
  std::mt19937 random(1);
  auto batch = llama_batch_init(sequences * length, 0, 1);
  for (int32_t i = 0; i < sequences * length; ++i)
    add(batch, static_cast<llama_token>(1000 + random() % 20000), i % length, i / length, true);
  encode(s, batch);
  for (int round = 0; round < rounds; ++round) {
    std::printf("%dx%d %.2f\n", sequences, length, sequences / seconds([&] { encode(s, batch); }));
    std::fflush(stdout);
  }
}

void vectors(const std::string& file, int threads, const std::string& ids) {
  constexpr int32_t kMost = 512;
  const auto s = open(file, threads, kMost, false, 1, true);
  auto batch = llama_batch_init(kMost, 0, 1);
  std::ifstream in(ids);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    batch.n_tokens = 0;
    for (llama_token token; words >> token && batch.n_tokens < kMost;) add(batch, token, batch.n_tokens, 0, true);
    encode(s, batch);
    const float* vector = llama_get_embeddings_seq(s.context, 0);
    if (vector == nullptr) stop("the model does not pool");
    for (int32_t i = 0; i < llama_model_n_embd_out(s.model); ++i)
      std::printf("%s%.9g", i > 0 ? " " : "", double(vector[i]));
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> a(values + 1, values + count);
  const auto number = [&](size_t i) { return std::atoi(a.at(i).c_str()); };
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  if (a.size() == 7 && a[0] == "logits") {
    logits(a[1], number(2), number(3), a[4] == "exact", a[5], a[6]);
  } else if (a.size() == 6 && a[0] == "bench") {
    bench(a[1], number(2), number(3), number(4), number(5));
  } else if (a.size() == 6 && a[0] == "embed") {
    embed(a[1], number(2), number(3), number(4), number(5));
  } else if (a.size() == 4 && a[0] == "vectors") {
    vectors(a[1], number(2), a[3]);
  } else {
    stop("logits, bench, embed or vectors; see the head of llama_peer.cpp");
  }
}
