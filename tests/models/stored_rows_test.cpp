// Matrices that files store in another order than layers use them.
#include "models/stored_rows.h"

#include <numeric>

#include "models/golden.h"

namespace millrace {
namespace {

template <class Element>
WeightView view(DType dtype, const std::vector<Element>& values, int64_t rows) {
  return {dtype, rows, std::ssize(values) / rows, reinterpret_cast<const std::byte*>(values.data())};
}

TEST(StoredRows, GroupsComeInTheOrderOfTheLayer) {
  std::vector<float> values(2 * 3 * 2 * 5);  // 2 groups of 3 members of 2 rows of 5 values
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<float> rows;
  for (const WeightView& part : in_layer_order(view(DType::F32, values, 12), {.groups = 2, .members = 3})) {
    ASSERT_EQ(part.cols, 5);
    for (int64_t i = 0; i < part.rows; ++i) rows.push_back(*reinterpret_cast<const float*>(part.row(i)) / 5);
  }
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

template <class Element>
void expect_transposed(DType dtype) {
  ThreadPool pool(2);
  std::vector<Element> a(7 * 40), b(7 * 3);  // [k, n], k is 7
  std::iota(a.begin(), a.end(), Element(0));
  std::iota(b.begin(), b.end(), Element(1000));
  std::vector<std::byte> copy;
  const std::vector<WeightView> stored{view(dtype, a, 7), view(dtype, b, 7)};
  const WeightView whole = transposed(stored, copy, pool);
  ASSERT_EQ(whole.rows, 43);
  ASSERT_EQ(whole.cols, 7);
  for (int64_t n = 0; n < 43; ++n) {
    for (int64_t k = 0; k < 7; ++k) {
      const Element want = n < 40 ? a[static_cast<size_t>(k * 40 + n)] : b[static_cast<size_t>(k * 3 + n - 40)];
      EXPECT_EQ(reinterpret_cast<const Element*>(whole.row(n))[k], want) << n << " " << k;
    }
  }
}

TEST(StoredRows, AreTransposed) {
  expect_transposed<uint16_t>(DType::BF16);
  expect_transposed<uint32_t>(DType::F32);
  EXPECT_FALSE(can_transpose(DType::Q8_0));
}

// GGUF files store the rows as layers use them. The layouts of the fast path then hold the same bytes.
TEST(StoredRows, FolderAndGgufGiveTheSameBits) {
  for (const char* name : {"gpt2", "gpt2_f16", "gpt_neox", "gpt_neox_serial"}) {
    const auto folder = goldens_folder() / name;
    const std::vector<int32_t> tokens{5, 17, 3, 60, 61, 9, 22, 40, 8, 33};
    const auto logits = [&](const std::string& model) {
      const auto runner = load(model, {.threads = 2, .context = 32, .rows = 16, .logit_rows = 16, .block_size = 16});
      return all_logits(*runner, tokens, 10);
    };
    EXPECT_EQ(logits(folder.string()), logits((folder / "model.gguf").string())) << name;
  }
}

}  // namespace
}  // namespace millrace
