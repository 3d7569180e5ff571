// Prints the likeliest next token of each position, and the cosine of two texts' embeddings: vectors MODEL TEXT TEXT
#include <millrace/millrace.h>

#include <algorithm>
#include <iostream>
#include <numeric>

int main(int argc, char** argv) {
  if (argc != 4) return std::cerr << "usage: vectors MODEL TEXT TEXT\n", 2;
  try {
    millrace::LanguageModel model(argv[1]);
    const auto tokens = model.tokenize(argv[2]);
    const auto logits = model.compute(MILLRACE_LOGITS, tokens);
    const auto vocabulary = logits.size() / tokens.size();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * vocabulary);
      std::cout << std::max_element(row, row + static_cast<std::ptrdiff_t>(vocabulary)) - row << " ";
    }
    const auto a = model.compute(MILLRACE_EMBEDDING_MEAN, tokens);
    const auto b = model.compute(MILLRACE_EMBEDDING_MEAN, model.tokenize(argv[3]));
    std::cout << "\ncosine " << std::inner_product(a.begin(), a.end(), b.begin(), 0.0) << "\n";
    return 0;
  } catch (const std::runtime_error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
