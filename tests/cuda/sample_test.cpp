// Tokens drawn on a GPU against the reference and the host's sampler, including hostile logits.
#include <map>

#include "cuda/support.h"
#include "engine/engine.h"
#include "models/golden.h"
#include "sampling/sampler.h"

namespace millrace {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<int32_t> draw(const Kernel<SampleOp>& kernel, TestMatrix& logits, const std::vector<DrawRow>& rows,
                          const std::vector<LogitChange>& changes) {
  const GpuCopy on_device(logits);
  const GpuBytes placed_rows(rows), placed_changes(changes);
  const GpuBytes ids(std::vector<int32_t>(rows.size(), -7));
  kernel.run({on_device.view(), placed_rows.as<DrawRow>(), placed_changes.as<LogitChange>(), ids.as<int32_t>()},
             on_gpu());
  const auto bytes = ids.read();
  const auto* found = reinterpret_cast<const int32_t*>(bytes.data());
  return {found, found + rows.size()};
}

std::vector<int32_t> draw_on_host(TestMatrix logits, const std::vector<DrawRow>& rows,
                                  const std::vector<LogitChange>& changes) {
  std::vector<int32_t> ids(rows.size());
  cpu_kernels().of<SampleOp>().front()->run({logits.view(), rows.data(), changes.data(), ids.data()}, {});
  return ids;
}

const Kernel<SampleOp>& kernel() { return *cuda_kernels().of<SampleOp>().front(); }

TEST(CudaSample, DrawsWhatTheReferenceDraws) {
  int draws = 0, same = 0;
  for (const int64_t vocab : {1, 7, 33, 1000, 49152, 128256, 262208}) {
    Random random;
    SCOPED_TRACE("seed " + std::to_string(random.seed()) + " vocabulary " + std::to_string(vocab));
    const auto unit = [&] { return static_cast<float>(random.below(1 << 20)) / (1 << 20); };
    TestMatrix logits(48, vocab, random, 3);
    std::vector<DrawRow> rows;
    std::vector<LogitChange> changes;
    for (int64_t i = 0; i < 48; ++i) {
      for (int64_t j = 0; i % 4 == 1 && j < vocab; ++j) logits.at(i, j) = std::round(logits.at(i, j));  // ties
      DrawRow row{.unit = unit(), .temperature = i % 6 == 0 ? 0 : 0.1f + 2 * unit()};
      if (i % 2 == 0) row.top_k = 1 + random.below(i % 4 == 0 ? 50 : 2000);
      if (i % 3 == 0) row.top_p = unit();
      if (i % 5 == 0) row.min_p = 0.2f * unit();
      row.repeated = static_cast<int32_t>(changes.size());
      for (int32_t t = 0; i % 2 == 1 && t < std::min<int64_t>(vocab, 3000); t += 2) changes.push_back({t, 1.3f});
      row.counted = static_cast<int32_t>(changes.size());
      for (int32_t t = 0; i % 3 == 1 && t < std::min<int64_t>(vocab, 500); t += 3) changes.push_back({t, 0.7f});
      row.biased = static_cast<int32_t>(changes.size());
      if (i % 7 == 1) changes.push_back({0, 30.0f});
      row.end = static_cast<int32_t>(changes.size());
      rows.push_back(row);
    }
    const auto got = draw(kernel(), logits, rows, changes), want = draw_on_host(logits, rows, changes);
    EXPECT_EQ(draw(kernel(), logits, rows, changes), got) << "another run drew otherwise";
    for (size_t i = 0; i < got.size(); ++i, ++draws) {
      same += got[i] == want[i] ? 1 : 0;
      EXPECT_GE(got[i], 0);
      EXPECT_LT(got[i], vocab);
      if (rows[i].temperature == 0) {
        EXPECT_EQ(got[i], want[i]) << i;
      }
    }
  }
  EXPECT_GE(same, draws - draws / 50) << "of " << draws;  // exponentials differ in their last bits
}

// Frequencies of many draws from one row match the probabilities (chi-square, at least five expected per cell).
TEST(CudaSample, FrequenciesAreTheProbabilities) {
  const int64_t vocab = 40, count = 4096;
  const SamplingParams params{.temperature = 0.8f, .top_k = 25, .top_p = 0.97f, .min_p = 0.005f, .seed = 11};
  TestMatrix logits(count, vocab);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (size_t i = 0; i < row.size(); ++i) row[i] = 2 * std::sin(static_cast<float>(i * i));
  std::map<int32_t, double> expected, found;
  std::vector<DrawRow> rows;
  constexpr int kHostDraws = 200000;
  for (int i = 0; i < kHostDraws; ++i) {
    SamplingParams other = params;
    other.stream = 1000000 + static_cast<uint64_t>(i);
    std::vector<float> copy = row;
    expected[Sampler(other, vocab).sample(copy)] += double(count) / kHostDraws;
  }
  for (int64_t i = 0; i < count; ++i) {
    SamplingParams own = params;
    own.stream = static_cast<uint64_t>(i);
    rows.push_back(*Sampler(own, vocab).describe({}));
    for (int64_t j = 0; j < vocab; ++j) logits.at(i, j) = row[static_cast<size_t>(j)];
  }
  for (const int32_t id : draw(kernel(), logits, rows, {})) found[id] += 1;
  double square = 0;
  int cells = 0;
  for (const auto& [id, times] : found) EXPECT_GT(expected[id], 0) << "token " << id << " cannot be drawn";
  for (const auto& [id, times] : expected) {
    if (times < 5) continue;
    square += (found[id] - times) * (found[id] - times) / times;
    ++cells;
  }
  EXPECT_LT(square, cells + 5 * std::sqrt(2.0 * cells)) << cells << " cells";
}

TEST(CudaSample, SurvivesAttacks) {
  const int64_t vocab = 1000;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TestMatrix logits(8, vocab);
  const auto fill = [&](int64_t row, auto value) {
    for (int64_t i = 0; i < vocab; ++i) logits.at(row, i) = value(i);
  };
  fill(0, [&](int64_t) { return nan; });
  fill(1, [&](int64_t) { return -kInfinite; });
  fill(2, [&](int64_t i) { return i == 77 ? kInfinite : nan; });
  fill(3, [&](int64_t) { return 3.0f; });
  fill(4, [&](int64_t i) { return i == 5 ? 1e30f : -1e30f; });
  fill(5, [&](int64_t i) { return i == 9 || i == 8 ? 0.0f : -kInfinite; });
  fill(6, [&](int64_t i) { return i == 3 ? -0.0f : i == 4 ? 0.0f : -5.0f; });
  fill(7, [&](int64_t i) { return float(i); });
  std::vector<DrawRow> rows(8, DrawRow{.unit = 0.999999, .temperature = 1, .top_k = 10, .top_p = 0.9f, .min_p = 0.01f});
  const auto got = draw(kernel(), logits, rows, {});
  EXPECT_EQ(got[0], -1);
  EXPECT_EQ(got[1], -1);
  EXPECT_EQ(got[2], 77);
  EXPECT_LT(got[3], 10);  // ties go to the first
  EXPECT_GE(got[3], 0);
  EXPECT_EQ(got[4], 5);
  EXPECT_EQ(got[5], 9);
  EXPECT_EQ(got, draw_on_host(logits, rows, {}));
}

// Streams that draw on the device give the same text as on the host, in any batch.
TEST(CudaSample, TheEngineDrawsAsTheHostDoes) {
  LoadOptions o{
      .device = DeviceChoice::Cuda, .threads = 2, .exact = true, .context = 120, .rows = 128, .block_size = 16};
  o.sequences = 8;
  auto runner = load((goldens_folder() / "llama_gqa").string(), o);
  const auto generate = [&](bool on_host, bool beside_others) {
    Engine engine(*runner);
    std::map<RequestId, std::vector<int32_t>> texts;
    for (int32_t i = 0; i < 6; ++i) {
      Request r{{1, 2 + i, 3, 4}, {.temperature = 0.9f, .top_k = 20, .top_p = 0.95f, .min_p = 0.01f, .seed = 7}, 40};
      r.sampling.stream = static_cast<uint64_t>(i);
      if (i % 2 == 1) r.sampling.repetition_penalty = 1.2f, r.sampling.frequency_penalty = 0.3f;
      if (i == 4) r.sampling.temperature = 0, r.sampling.presence_penalty = 0.5f;
      if (on_host) r.sampling.logprobs = 0;
      engine.submit(r);
    }
    if (beside_others) engine.submit({{9, 8, 7}, {.temperature = 1, .logprobs = 3}, 30});
    if (beside_others) engine.submit({{9, 8}, {.temperature = 0}, 30});
    while (engine.step([&](const Emission& e) { texts[e.id].push_back(e.token); })) {
    }
    texts.erase(7);
    texts.erase(8);
    return texts;
  };
  const auto host = generate(true, false), device = generate(false, false);
  int same = 0;
  for (const auto& [id, text] : host) same += text == device.at(id) ? 1 : 0;
  EXPECT_GE(same, 5);  // a draw at a boundary may fall to the other side
  EXPECT_EQ(generate(false, false), device);
  const auto beside = generate(false, true);
  same = 0;
  for (const auto& [id, text] : beside) same += text == device.at(id) ? 1 : 0;
  EXPECT_GE(same, 5);
}

}  // namespace
}  // namespace millrace
