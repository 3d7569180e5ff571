// Test cases of CUDA attention.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/cuda/launch.h"

namespace millrace::bench {

enum class Data {
  Random,    // scores approximately normal
  Sharp,     // scores with a spread of some tens
  Huge,      // scores spread over +-1e4
  Equal,     // all scores the same
  Spike,     // one score of 1e4 among small ones
  Low,       // all scores near -1e4
  High,      // all scores near 1e4
  Overflow,  // dot products that are minus infinity in f32
};

struct Case {
  std::string name;
  CudaAttentionKind kind = CudaAttentionKind::Decode;
  Softmax softmax = Softmax::Lazy;
  DType kv = DType::BF16, q = DType::BF16, out = DType::BF16;
  int heads = 32, kv_heads = 8, head_dim = 128, block_size = 64;
  int window = 0;
  float softcap = 0, phi = 0;
  Data data = Data::Random;
  std::vector<std::pair<int, int>> slices;  // rows, past
};

inline std::vector<std::pair<int, int>> decode_slices(const std::vector<int>& pasts) {
  std::vector<std::pair<int, int>> slices;
  for (int past : pasts) slices.push_back({1, past});
  return slices;
}

inline const char* name_of(Softmax softmax) {
  return softmax == Softmax::Online ? "online" : softmax == Softmax::Lazy ? "lazy" : "unified";
}

inline std::vector<Case> decode_cases(CudaAttentionKind kind) {
  std::vector<Case> cases;
  const auto ragged = decode_slices({0, 1, 14, 15, 16, 63, 64, 700, 1023, 5});
  for (DType kv : {DType::BF16, DType::F16}) {
    for (Softmax softmax : {Softmax::Online, Softmax::Lazy, Softmax::Unified}) {
      for (int dim : {64, 80, 96, 128, 256}) {
        if (softmax != Softmax::Lazy && dim != 64 && dim != 128) continue;
        Case c{"ragged", kind, softmax, kv, kv, kv};
        c.head_dim = dim;
        c.slices = ragged;
        cases.push_back(c);
      }
      Case c{"", kind, softmax, kv, kv, kv};
      auto add = [&](const char* name, auto change) {
        Case changed = c;
        changed.name = name;
        changed.slices = decode_slices({1000});
        change(changed);
        cases.push_back(changed);
      };
      add("one 1k", [](Case&) {});
      add("mha", [](Case& x) { x.kv_heads = 32, x.slices = decode_slices({1023, 130, 77}); });
      add("one 5k", [](Case& x) { x.heads = 8, x.kv_heads = 2, x.slices = decode_slices({5000}); });
      add("many pairs", [](Case& x) { x.kv_heads = 32, x.slices = decode_slices(std::vector<int>(12, 120)); });
      add("many ragged", [](Case& x) {
        x.slices.clear();
        for (int i = 0; i < 70; ++i) x.slices.push_back({i % 7 == 3 ? 0 : 1, i * 37 % 300});
      });
      add("uneven", [](Case& x) {
        for (int i = 0; i < 19; ++i) x.slices.push_back({i % 5 == 4 ? 0 : 1, i * i * 17 % 1200});
      });
      add("uneven windows", [](Case& x) {
        for (int i = 0; i < 40; ++i) x.slices.push_back({1, i * i * 7 % 900});
        x.window = 200;
      });
      add("mqa 24", [](Case& x) { x.heads = 24, x.kv_heads = 1; });
      add("group 12", [](Case& x) { x.heads = 24, x.kv_heads = 2; });
      add("five rows", [](Case& x) { x.slices = {{5, 300}, {1, 40}, {3, 0}, {5, 777}}; });
      add("window", [](Case& x) { x.window = 100, x.slices = decode_slices({1000, 99, 100, 50, 500}); });
      add("softcap", [](Case& x) { x.softcap = 5, x.data = Data::Sharp; });
      add("page 16", [](Case& x) { x.block_size = 16; });
      add("page 48", [](Case& x) { x.block_size = 48; });
      add("f32 io", [](Case& x) { x.q = x.out = DType::F32; });
      add("high phi", [](Case& x) { x.phi = 300; });
      add("low phi", [](Case& x) { x.phi = -300; });
      add("sharp", [](Case& x) { x.data = Data::Sharp; });
      add("huge", [](Case& x) { x.data = Data::Huge; });
      add("equal", [](Case& x) { x.data = Data::Equal; });
      add("spike", [](Case& x) { x.data = Data::Spike; });
      add("low", [](Case& x) { x.data = Data::Low; });
      add("high", [](Case& x) { x.data = Data::High; });
      if (kv == DType::BF16) add("overflow", [](Case& x) { x.data = Data::Overflow; });
    }
  }
  return cases;
}

inline std::vector<Case> prefill_cases(CudaAttentionKind kind) {
  std::vector<Case> cases;
  for (DType kv : {DType::BF16, DType::F16}) {
    Case c{"", kind, Softmax::Lazy, kv, kv, kv};
    auto add = [&](const char* name, auto change) {
      Case changed = c;
      changed.name = name;
      changed.slices = {{200, 0}};
      change(changed);
      cases.push_back(changed);
    };
    for (int dim : {64, 80, 96, 128, 256}) add("prompt", [&](Case& x) { x.head_dim = dim; });
    add("chunk", [](Case& x) { x.slices = {{128, 300}}; });
    add("ragged", [](Case& x) { x.slices = {{1, 0}, {129, 17}, {0, 5}, {64, 64}, {1, 500}, {255, 1}}; });
    add("ragged 64", [](Case& x) {
      x.head_dim = 64, x.slices = {{1, 0}, {129, 17}, {0, 5}, {64, 64}, {1, 500}, {255, 1}};
    });
    add("mha", [](Case& x) { x.kv_heads = 32; });
    add("window", [](Case& x) { x.window = 50, x.slices = {{300, 0}, {70, 200}}; });
    add("softcap", [](Case& x) { x.softcap = 5, x.data = Data::Sharp; });
    add("page 16", [](Case& x) { x.block_size = 16; });
    add("page 128", [](Case& x) { x.block_size = 128, x.slices = {{300, 200}}; });
    add("f32 io", [](Case& x) { x.q = x.out = DType::F32; });
    add("long", [](Case& x) { x.heads = 8, x.kv_heads = 2, x.slices = {{700, 1500}}; });
    for (int kv_heads : {8, 32}) {
      add("more tiles than blocks", [&](Case& x) { x.kv_heads = kv_heads, x.slices = {{1100, 30}}; });
    }
    for (Data data : {Data::Sharp, Data::Huge, Data::Equal, Data::Spike, Data::Low, Data::High}) {
      add("hostile", [&](Case& x) { x.data = data; });
      add("hostile tiles", [&](Case& x) { x.data = data, x.slices = {{700, 0}}; });
    }
    if (kv == DType::BF16) add("overflow", [](Case& x) { x.data = Data::Overflow; });
  }
  return cases;
}

inline std::vector<Case> general_cases() {
  std::vector<Case> cases;
  for (DType kv : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
    for (int dim : {8, 40, 72, 128, 160, 256, 320, 512}) {
      if (kv == DType::Q8_0 && dim % 32 != 0) continue;
      Case c{"general", CudaAttentionKind::General, Softmax::Online, kv, DType::F32, DType::F32};
      c.head_dim = dim;
      c.heads = 4;
      c.kv_heads = 2;
      c.block_size = dim == 40 ? 7 : 32;
      c.window = dim == 72 ? 60 : 0;
      c.softcap = dim == 160 ? 5.0f : 0.0f;
      c.slices = {{1, 0}, {0, 3}, {33, 70}, {1, 400}};
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace millrace::bench
