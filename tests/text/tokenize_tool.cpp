// For scripts/check_tokenizers.py: opens a vocabulary and answers requests from stdin, one per line, with texts in
// hexadecimal:
//   E add_special parse_special TEXT -> ids
//   D skip_special id id ... -> text
//   S skip_special id id ... -> text, decoded as a stream
//   T -> seconds of the previous request
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>

#include "base/log.h"
#include "text/detokenizer.h"
#include "vocabulary_file.h"

namespace millrace {
namespace {

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  StreamingDetokenizer stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

class Session {
 public:
  explicit Session(const char* path) {
    const auto start = std::chrono::steady_clock::now();
    tokenizer_ = open_vocabulary(path);
    seconds_ = seconds_since(start);
  }

  std::string answer(const std::string& line) {
    std::istringstream in(line);
    char request = 0;
    in >> request;
    const auto start = std::chrono::steady_clock::now();
    std::string answer;
    if (request == 'T') return std::to_string(seconds_);
    if (request == 'E') {
      bool add_special = false, parse_special = false;
      std::string hex;
      in >> add_special >> parse_special >> hex;
      for (const int32_t id : tokenizer_->encode(from_hex(hex), {add_special, parse_special})) {
        answer += std::to_string(id) + " ";
      }
    } else {
      bool skip_special = false;
      in >> skip_special;
      std::vector<int32_t> ids;
      for (int32_t id = 0; in >> id;) ids.push_back(id);
      answer =
          to_hex(request == 'S' ? streamed(*tokenizer_, ids, skip_special) : tokenizer_->decode(ids, skip_special));
    }
    seconds_ = seconds_since(start);
    return answer;
  }

 private:
  static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  double seconds_ = 0;  // of the previous request
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  millrace::set_verbosity(0);
  try {
    millrace::Session session(argv[1]);
    for (std::string line; std::getline(std::cin, line);) std::cout << session.answer(line) << std::endl;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
