#include "models/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace millrace {
namespace {

constexpr float kNormEpsilon = 1e-6f;  // transformers ignores the config's epsilon in these norms

// A buffer without padding between rows, so that by_head() can view it.
Matrix packed_buffer(Pass& p, std::string_view name, int64_t cols) {
  Matrix buffer = p.buffer(name, cols);
  buffer.stride = cols;
  return buffer;
}

// Columns [first, first + n) of each head, as [rows * heads, n].
Matrix by_head(const Matrix& x, int heads, int64_t first, int64_t n) {
  const Matrix heads_as_rows{x.dtype, x.rows * heads, x.cols / heads, x.cols / heads, x.data};
  return heads_as_rows.columns(first, n);
}

struct HeadViews {
  std::vector<std::vector<WeightView>> keys, values;
  bool keys_transposed = false;  // keys are [plain, latent]
};

// GGUF splits the matrix and transposes the keys; older files and Hugging Face have [heads][plain + value][latent].
HeadViews find_heads(Weights::Layer& at, const LatentSizes& s) {
  HeadViews found;
  const TensorName keys{"attn_k_b.weight", "self_attn.k_b_proj.weight"};
  if (at.has(keys)) {
    for (const auto& view : at.slices(keys, {s.heads, s.latent, s.plain})) found.keys.push_back({view});
    const TensorName values{"attn_v_b.weight", "self_attn.v_b_proj.weight"};
    for (const auto& view : at.slices(values, {s.heads, s.value, s.latent})) found.values.push_back({view});
    at.weights().ignore("attn_kv_b.weight");  // some files have both forms
    return found;
  }
  found.keys_transposed = true;
  const TensorName both{"attn_kv_b.weight", "self_attn.kv_b_proj.weight"};
  const int64_t each = s.plain + s.value;
  const WeightView all = at.slices(both, {1, s.heads * each, s.latent})[0];
  for (int64_t head = 0; head < s.heads; ++head) {
    found.keys.push_back({{all.dtype, s.plain, s.latent, all.row(head * each)}});
    found.values.push_back({{all.dtype, s.value, s.latent, all.row(head * each + s.plain)}});
  }
  return found;
}

// Kernels of a GPU read rows in pieces of eight elements. Buffers of heads have no padding, so that a head is a row,
// too. Heads whose size is no multiple of eight have a kernel that reads single elements, if all of them lie in a row.
bool is_aligned(const LatentSizes& s) {
  const int64_t rows[] = {s.query(), s.latent + s.rotary, s.latent, s.value};
  const auto whole = [&](int64_t row) { return s.heads * row % 8 == 0; };
  return std::all_of(std::begin(rows), std::end(rows), whole) && (s.plain % 8 != 0 || s.query() % 8 == 0);
}

// Routing of grouped linear layers with a matrix per head, for the first rows of the pass.
Routing route_heads(Pass& p, int64_t rows, int heads) {
  const int64_t pairs = rows * heads;
  const auto array = [&](std::string_view name, int64_t count) {
    return reinterpret_cast<int32_t*>(p.buffer(name, DType::F32, 1, count).data);  // elements of four bytes
  };
  const Routing routing{.rows = pairs,
                        .groups = heads,
                        .chosen = array("chosen heads", pairs),
                        .order = array("head order", pairs),
                        .offsets = array("head offsets", heads + 1)};
  if (rows > 0) p.ops.call<HeadRoutingOp>({p.ops.bucket(rows), heads}, {routing});
  return routing;
}

LatentPromptOp::Problem problem_of(const Pass& p, const LatentSizes& s, const KvLayer& kv, const SequenceSlice& slice) {
  return {.kv = kv.dtype,
          .precision = p.ops.precision(),
          .heads = s.heads,
          .plain_dim = s.plain,
          .rotary_dim = s.rotary,
          .value_dim = s.value,
          .latent_dim = static_cast<int>(s.latent),
          .block_size = kv.block_size,
          .rows = slice.rows,
          .context = int64_t{slice.past} + slice.rows};
}

// The tables of a GPU, from a slice on.
SliceTables tables_from(SliceTables tables, size_t slice) {
  if (tables.slices == nullptr) return tables;
  tables.slices += slice;
  tables.pages += static_cast<int64_t>(slice) * tables.page_stride;
  return tables;
}

// A calibration observes scores of absorbed queries.
bool is_materialised(Pass& p, const LatentSizes& s, int state, const SequenceSlice& slice) {
  if (slice.rows == 1 || slice.drafts || p.observes_scores()) return false;
  return p.ops.materialises(problem_of(p, s, p.attention_args(state, {}, {}, {}).kv, slice));
}

}  // namespace

LatentSizes read_latent_sizes(const WeightSource& source, const LatentSizes& usual, DecoderConfig& c) {
  const Config& keys = source.config();
  constexpr Config::Range kSize{1, 1 << 12};
  const auto size = [&](ConfigKey key, int64_t otherwise) {
    if (otherwise <= 0 || is_gguf(source)) return static_cast<int>(keys.integer(key, kSize));
    return static_cast<int>(keys.optional_integer(key, kSize).value_or(otherwise));
  };
  LatentSizes s;
  s.heads = c.heads;
  s.latent = size({"kv_lora_rank", "attention.kv_lora_rank"}, usual.latent);
  s.query_latent = keys.optional_integer({"q_lora_rank", "attention.q_lora_rank"}, {is_gguf(source) ? 0 : 1, 1 << 16})
                       .value_or(usual.query_latent);
  s.rotary = size({"qk_rope_head_dim", "rope.dimension_count"}, usual.rotary);
  if (is_gguf(source)) {
    const bool split = keys.has({.gguf = "attention.key_length_mla"});  // else the keys have the sizes of a head
    const ConfigKey query{.gguf = split ? "attention.key_length_mla" : "attention.key_length"};
    s.plain = size(query, 0) - s.rotary;
    if (s.plain < 1) keys.fail_key(query, "must exceed the rotary part");
    const ConfigKey value{.gguf = split ? "attention.value_length_mla" : "attention.value_length"};
    // Files of MiniCPM3 lack the key; the output matrix has a column for each element of the heads' values.
    const TensorInfo* out = source.find("blk.0.attn_output.weight");
    const int64_t columns = out != nullptr && out->shape.size() == 2 ? out->shape[1] : c.hidden;
    s.value = static_cast<int>(keys.optional_integer(value, kSize).value_or(columns / c.heads));
    if (s.value < 1 || s.value > kSize.most) keys.fail_key(value, "is missing, and no tensor tells it");
  } else {
    s.plain = size({.hf = "qk_nope_head_dim"}, usual.plain);
    s.value = size({.hf = "v_head_dim"}, usual.value);
  }
  c.kv_heads = 1;
  c.head_dim = s.query();
  c.rotary_dim = s.rotary;
  return s;
}

float latent_score_scale(const WeightSource& source, const LatentSizes& s) {
  const Config& keys = source.config();
  const double plain = 1 / std::sqrt(double(s.query()));
  const std::string type = keys.optional_string({"rope_parameters.rope_type", "rope.scaling.type"}).value_or("default");
  const double factor = keys.optional_number({"rope_parameters.factor", "rope.scaling.factor"}).value_or(1);
  if (type == "default" || type == "none" || !(factor > 1)) return static_cast<float>(plain);
  // GGUF files of these architectures store a tenth of mscale_all_dim.
  const double per_log = is_gguf(source)
                             ? keys.optional_number({.gguf = "rope.scaling.yarn_log_multiplier"}).value_or(0)
                             : 0.1 * keys.optional_number({.hf = "rope_parameters.mscale_all_dim"}).value_or(0);
  const double m = per_log * std::log(factor) + 1;
  return static_cast<float>(plain * m * m);
}

RopeFrequencies read_latent_rope(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  if (keys.optional_number({.hf = "rope_parameters.partial_rotary_factor"}).value_or(1) != 1)
    refuse(source, "a partial_rotary_factor in latent attention");
  RopeFrequencies rope = read_rope_frequencies(source, c);
  // Models with a factor on the scores have the same factor on cosines and sines, which cancels there.
  const bool on_scores = keys.optional_number({.gguf = "rope.scaling.yarn_log_multiplier"}).value_or(0) != 0;
  const bool given = keys.has({.gguf = "rope.scaling.yarn_attn_factor"});
  if (is_gguf(source) && on_scores && !given) rope.magnitude = 1;
  return rope;
}

LatentAttention load_latent_attention(Weights::Layer& at, const DecoderConfig& c, const LatentSizes& s) {
  LatentAttention a{.sizes = s};
  if (at.weights().on_device() && !is_aligned(s))
    refuse(at.weights().source(), "latent attention with heads of such sizes on a GPU (rows would not be aligned)");
  const LinearPart row{{"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"}, s.latent + s.rotary};
  const LinearPart query_down{{"attn_q_a.weight", "self_attn.q_a_proj.weight"}, s.query_latent};
  const int64_t queries = int64_t{s.heads} * s.query();
  if (at.has(query_down.name)) {
    a.down = at.linear({query_down, row}, c.hidden);
    a.query_norm = at.vector({"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"}, s.query_latent);
    a.query = at.linear({{{"attn_q_b.weight", "self_attn.q_b_proj.weight"}, queries}}, s.query_latent);
  } else {
    a.down = at.linear({{{"attn_q.weight", "self_attn.q_proj.weight"}, queries}, row}, c.hidden);
  }
  a.norm = at.vector({"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"}, s.latent);
  HeadViews heads = find_heads(at, s);
  a.absorb = at.weights().grouped({.of_heads = true}, std::move(heads.keys), heads.keys_transposed);
  a.to_value = at.weights().grouped({.of_heads = true}, std::move(heads.values));
  return a;
}

// Prompts come last in a batch. All chunks behind the last absorbed one are materialised.
LatentForms choose_latent_forms(Pass& p, const LatentSizes& s, int state) {
  const auto& slices = p.batch.sequences;
  LatentForms forms{.absorbed = slices.size()};
  while (forms.absorbed > 0 && is_materialised(p, s, state, slices[forms.absorbed - 1])) --forms.absorbed;
  int64_t rows = p.rows();
  for (const auto& slice : slices.subspan(forms.absorbed)) rows -= slice.rows;
  forms.by_head = route_heads(p, rows, s.heads);
  return forms;
}

Matrix latent_attention_block(Pass& p, const LatentAttention& a, const Normed& x, int state, const Rope& rope,
                              const AttentionSettings& settings, const LatentForms& forms) {
  const LatentSizes& s = a.sizes;
  const int64_t row_dim = s.latent + s.rotary;
  const int64_t queries = int64_t{s.heads} * s.query();
  const Matrix absorbed = packed_buffer(p, "absorbed q", s.heads * row_dim);
  const Matrix sums = packed_buffer(p, "latent sums", s.heads * s.latent);
  const Matrix attended = packed_buffer(p, "attended", int64_t{s.heads} * s.value);
  const Matrix down = p.buffer("latent", a.down->n);
  p.linear(x, a.down, down);
  const Matrix row = down.columns(a.down->n - row_dim, row_dim);
  Matrix q, plain;
  if (a.query != nullptr) {
    q = packed_buffer(p, "latent q", queries);
    const Matrix from = down.columns(0, s.query_latent), normed = p.buffer("normed query", s.query_latent);
    p.ops.linear({NormKind::Rms, from, normed, a.query_norm->data, nullptr, kNormEpsilon}, *a.query, q);
  } else {  // rows of the product hold more than queries, so that their heads are no rows of a matrix
    q = down.columns(0, queries);
    plain = packed_buffer(p, "plain q", int64_t{s.heads} * s.plain);
  }
  p.write_latent(state, {.style = rope.style,
                         .row = row,
                         .norm = a.norm->data,
                         .epsilon = kNormEpsilon,
                         .q = q,
                         .absorbed = absorbed,
                         .plain = plain,
                         .angles = rope.angles,
                         .heads = s.heads});
  const Matrix plain_parts = plain.cols > 0 ? plain : q;
  if (const int64_t rows = forms.rows(); rows > 0) {
    const Matrix queries_of = absorbed.first_rows(rows), sums_of = sums.first_rows(rows);
    const auto part = [&](const Matrix& x, int64_t n) { return by_head(x.first_rows(rows), s.heads, 0, n); };
    // write_latent lets the product start when q is complete, but its own copy is not.
    p.ops.grouped_linear(part(plain_parts, s.plain), *a.absorb, forms.by_head, part(absorbed, s.latent),
                         q.first_rows(rows));
    p.attend_written(state, queries_of, settings, sums_of, forms.absorbed);
    p.ops.grouped_linear(part(sums, s.latent), *a.to_value, forms.by_head, part(attended, s.value));
  }
  LatentPromptOp::Args chunk{.attention = p.attention_args(state, absorbed, settings, attended),
                             .plain = plain_parts,
                             .plain_stride = plain_parts.cols / s.heads,
                             .plain_dim = s.plain,
                             .value_dim = s.value,
                             .keys = &a.absorb->weights,
                             .values = &a.to_value->weights};
  for (size_t i = forms.absorbed; i < p.batch.sequences.size(); ++i) {
    const SequenceSlice& slice = p.batch.sequences[i];
    chunk.attention.sequences = {&slice, 1};
    chunk.attention.tables = tables_from(p.batch.tables, i);
    p.ops.latent_prompt(problem_of(p, s, chunk.attention.kv, slice), chunk);
  }
  return attended;
}

}  // namespace millrace
