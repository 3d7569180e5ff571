// Streams the continuation of a prompt: generate MODEL PROMPT
#include <millrace/millrace.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: generate MODEL PROMPT\n", 2;
  try {
    millrace::LanguageModel model(argv[1]);
    millrace::GenerateSettings settings;
    settings.max_tokens = 32;
    settings.temperature = 0.F;
    settings.chat = false;
    const auto generated =
        model.generate(argv[2], settings, [](std::string_view piece) { std::cout << piece << std::flush; });
    std::cout << "\n" << generated.tokens.size() << " tokens\n";
    return 0;
  } catch (const std::runtime_error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
