#include "engine/adapter_experts.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "base/error.h"

namespace millrace {
namespace {

// Parameters of the modules of stacked experts, in the order of PEFT's wrappers.
constexpr std::array<std::string_view, 6> kParameters = {"gate_up_proj", "gate_up_proj_bias", "up_proj",
                                                         "up_proj_bias", "down_proj",         "down_proj_bias"};

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
}

std::string_view usual_name(std::string_view matrix) {
  return matrix == "w1" ? "gate_proj" : matrix == "w3" ? "up_proj" : matrix == "w2" ? "down_proj" : matrix;
}

}  // namespace

std::optional<std::string> expert_parameter(const std::string& module, const std::vector<std::string>& targets,
                                            const std::string& origin) {
  std::string_view name = module;
  size_t depth = 0;  // wrappers around this one
  for (constexpr std::string_view kInner = ".base_layer"; name.ends_with(kInner); ++depth)
    name.remove_suffix(kInner.size());
  if (!name.ends_with(".experts")) return std::nullopt;
  std::vector<std::string> adapted;
  for (const std::string_view parameter : kParameters) {
    const std::string full = fmt::format("{}.{}", name, parameter);
    const auto is = [&](const std::string& target) { return full == target || full.ends_with("." + target); };
    if (std::any_of(targets.begin(), targets.end(), is)) adapted.push_back(full);
  }
  if (depth >= adapted.size())
    fail(ErrorKind::BadFile, "{}: target_parameters names no parameter of '{}'", origin, module);
  return adapted[adapted.size() - 1 - depth];
}

bool is_before_0_19_1(const std::string& peft_version) {
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(peft_version.c_str(), "%4d.%4d.%4d", &major, &minor, &patch) < 2) return true;
  return std::tuple(major, minor, patch) < std::tuple(0, 19, 1);
}

ExpertModule expert_module(const std::string& plain) {
  constexpr std::string_view kExperts = ".experts.";
  const auto at = plain.rfind(kExperts);
  if (at == plain.npos) return {plain};
  std::string_view layer = std::string_view(plain).substr(0, at);
  std::string_view matrix = std::string_view(plain).substr(at + kExperts.size());
  const auto last = layer.rfind('.');
  if (last != layer.npos && !is_number(layer.substr(last + 1))) layer = layer.substr(0, last);  // "layers.0.mlp"
  ExpertModule named;
  if (const auto dot = matrix.find('.'); dot != matrix.npos && is_number(matrix.substr(0, dot))) {
    named.expert = std::stoll(std::string(matrix.substr(0, dot)));
    matrix = usual_name(matrix.substr(dot + 1));
  }
  named.module = fmt::format("{}.experts.{}", layer, matrix);
  return named;
}

namespace {

// The matrices of a pair in f32, with those of one expert after those of another.
struct Factors {
  Floats a, b;  // [experts][rank][k], [experts][n][rank]
};

// PEFT stacks the rows of A by expert and alternates the experts in the columns of B.
Factors unstacked(const AdapterPair& pair, int64_t n, int64_t k, const std::string& origin) {
  const int64_t experts = pair.experts, rank = pair.rank;
  const bool swapped = pair.a.shape[1] != k;
  const Floats by_expert = read_matrix(pair.a, origin), alternating = read_matrix(pair.b, origin);
  const int64_t columns = pair.a.shape[1], rows = pair.b.shape[0];
  Factors factors{Floats(size_t(experts * rank * k)), Floats(size_t(experts * n * rank))};
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const float value = by_expert[size_t((e * rank + r) * columns + c)];
        (swapped ? factors.b[size_t((e * n + c) * rank + r)] : factors.a[size_t((e * rank + r) * k + c)]) = value;
      }
      for (int64_t i = 0; i < rows; ++i) {
        const float value = alternating[size_t((i * rank + r) * experts + e)];
        (swapped ? factors.a[size_t((e * rank + r) * k + i)] : factors.b[size_t((e * n + i) * rank + r)]) = value;
      }
    }
  }
  return factors;
}

void check(const AdapterPair& pair, const ExpertChange& change, int64_t experts, int64_t k, const std::string& origin) {
  const int64_t n = change.rows;
  if (pair.embedding) fail(ErrorKind::BadFile, "{}: '{}' is no embedding", origin, pair.module);
  if (pair.expert >= experts)
    fail(ErrorKind::BadFile, "{}: '{}' is of expert {}, the model has {}", origin, pair.module, pair.expert, experts);
  if (pair.expert < 0 && pair.experts != experts) {
    fail(ErrorKind::BadFile, "{}: '{}' is for {} experts, the model has {}", origin, pair.module,
         std::max<int64_t>(pair.experts, 1), experts);
  }
  const int64_t own_k = pair.a.shape.back(), own_n = pair.b.shape[pair.b.shape.size() - 2];
  const bool swapped = pair.expert < 0 && pair.a.shape.size() == 2 && own_k == n && own_n == k;
  if ((own_k != k || own_n != n) && !swapped) {
    fail(ErrorKind::BadFile, "{}: '{}' is for matrices [{}, {}], the model has [{}, {}]", origin, pair.module, own_n,
         own_k, n, k);
  }
  if (pair.is_old_stack && n == k && !change.inputs_first) {
    fail(ErrorKind::Unsupported,
         "{}: '{}' is for square matrices, which PEFT before 0.19.1 stacked in two ways; save it with a later one",
         origin, pair.module);
  }
}

// The rows of an expert's B in the order of the layer.
Floats in_order(Floats rows, int64_t rank, const RowGroups& stored_by) {
  if (stored_by == RowGroups()) return rows;
  const WeightView view{DType::F32, std::ssize(rows) / rank, rank, reinterpret_cast<const std::byte*>(rows.data())};
  Floats result;
  for (const WeightView& piece : in_layer_order(view, stored_by)) {
    const auto* values = reinterpret_cast<const float*>(piece.data);
    result.insert(result.end(), values, values + piece.rows * piece.cols);
  }
  return result;
}

void add_pair(const AdapterPair& pair, const ExpertChange& change, const LoraWeights::Part& part, int64_t k,
              const std::string& origin, PackedExperts& to) {
  const int64_t n = change.rows, rank = pair.rank;
  const bool is_flat = pair.expert < 0 && pair.a.shape.size() == 2;
  const Factors factors =
      is_flat ? unstacked(pair, n, k, origin) : Factors{read_matrix(pair.a, origin), read_matrix(pair.b, origin)};
  const int64_t count = pair.expert < 0 ? pair.experts : 1, first = std::max<int64_t>(pair.expert, 0);
  for (int64_t e = 0; e < count; ++e) {
    const int64_t place = to.place.empty() ? first + e : to.place[size_t(first + e)];
    std::copy_n(&factors.a[size_t(e * rank * k)], rank * k, &to.a[size_t(place * to.weights.a_step + part.first * k)]);
    const auto b = factors.b.begin() + e * n * rank;
    Floats columns = transposed(in_order({b, b + n * rank}, rank, change.stored_by), n, rank);
    scale(columns, pair.scale, pair.module, origin);
    std::copy(columns.begin(), columns.end(), to.b.begin() + place * to.weights.b_step + part.at);
  }
}

// Numbers the experts that some change has a pair for; empty: all are changed.
std::vector<int32_t> places_of(std::span<const ExpertChange> changes, int64_t experts) {
  std::vector<int32_t> places(static_cast<size_t>(experts), -1);
  for (const ExpertChange& change : changes) {
    for (const AdapterPair* pair : change.pairs) {
      if (pair->expert < 0) return {};
      places[static_cast<size_t>(pair->expert)] = 0;
    }
  }
  int32_t count = 0;
  for (int32_t& place : places) {
    if (place == 0) place = count++;
  }
  return count == experts ? std::vector<int32_t>() : places;
}

}  // namespace

PackedExperts pack_experts(std::span<const ExpertChange> changes, int64_t experts, int64_t k,
                           const std::string& origin) {
  PackedExperts packed;
  LoraWeights& w = packed.weights;
  MR_ASSERT(changes.size() <= LoraWeights::kMostParts);
  for (const ExpertChange& change : changes) {
    int64_t rank = 0;
    for (const AdapterPair* pair : change.pairs) {
      check(*pair, change, experts, k, origin);
      if (pair->expert < 0 && change.pairs.size() > 1)
        fail(ErrorKind::BadFile, "{}: '{}' is there for all experts and for single ones", origin, pair->module);
      rank = std::max(rank, pair->rank);
    }
    w.part[w.parts++] = {
        change.column, static_cast<int32_t>(change.rows), w.rank, static_cast<int32_t>(rank), w.b_step, 0};
    w.rank += static_cast<int32_t>(rank);
    w.b_step += rank * change.rows;
  }
  w.a_step = w.rank * k;
  packed.place = places_of(changes, experts);
  const int64_t changed =
      packed.place.empty() ? experts : *std::max_element(packed.place.begin(), packed.place.end()) + 1;
  packed.a.resize(static_cast<size_t>(changed * w.a_step));
  packed.b.resize(static_cast<size_t>(changed * w.b_step));
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const AdapterPair* pair : changes[i].pairs) add_pair(*pair, changes[i], w.part[i], k, origin, packed);
  }
  return packed;
}

}  // namespace millrace
