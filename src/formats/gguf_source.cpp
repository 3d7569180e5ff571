#include "formats/gguf_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/gguf_reader.h"

namespace millrace {
namespace {

constexpr int64_t kMostParts = 9999;
constexpr size_t kPartDigits = 5;

// The parts of a name "<stem>-00002-of-00003.gguf".
struct PartName {
  std::string stem;
  int64_t total;
};

std::optional<PartName> parse_part_name(const std::string& file_name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (file_name.size() <= kPattern.size()) return std::nullopt;
  const size_t begin = file_name.size() - kPattern.size();
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const auto c = static_cast<unsigned char>(file_name[begin + i]);
    if (kPattern[i] == '0' ? !std::isdigit(c) : c != kPattern[i]) return std::nullopt;
  }
  const std::string total =
      file_name.substr(file_name.size() - std::string_view(".gguf").size() - kPartDigits, kPartDigits);
  return PartName{file_name.substr(0, begin), std::stoll(total)};
}

class GgufSource : public WeightSource {
 public:
  explicit GgufSource(const std::filesystem::path& path) : WeightSource(path.string()) {
    const auto part_name = parse_part_name(path.filename().string());
    const auto part_path = [&](int64_t i) {
      return path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", part_name->stem, i + 1, part_name->total);
    };
    GgufContents first = open_part(part_name ? part_path(0) : path);
    const int64_t parts = first.metadata.integer("split.count").value_or(1);
    check_parts(first.metadata, parts, part_name);
    metadata_ = std::make_unique<GgufMetadata>(std::move(first.metadata));
    add_tensors(std::move(first.tensors));
    for (int64_t i = 1; i < parts; ++i) add_part(part_path(i), i);
    check_total();
    config_ = std::make_unique<Config>(Config::from_gguf(*metadata_));
  }

  Convention convention() const override { return Convention::Gguf; }
  const Config& config() const override { return *config_; }
  const GgufMetadata* gguf() const override { return metadata_.get(); }

 private:
  GgufContents open_part(const std::filesystem::path& path) {
    const MappedFile& file = map_file(path);
    return read_gguf(file.bytes(), path.string());
  }

  void check_parts(const GgufMetadata& first, int64_t parts, const std::optional<PartName>& part_name) const {
    if (parts < 1 || parts > kMostParts) fail(ErrorKind::BadFile, "{}: split.count is {}", origin(), parts);
    if (parts > 1 && !part_name) {
      fail(ErrorKind::BadFile, "{}: one of {} parts, but its name does not end in -00001-of-{:05}.gguf", origin(),
           parts, parts);
    }
    if (parts > 1 && part_name->total != parts) {
      fail(ErrorKind::BadFile, "{}: split.count is {}, the name says {}", origin(), parts, part_name->total);
    }
    if (const int64_t number = first.integer("split.no").value_or(0); number != 0) {
      fail(ErrorKind::BadFile, "{}: part {} of a split model where the first was expected", first.origin(), number + 1);
    }
  }

  void add_part(const std::filesystem::path& path, int64_t number) {
    GgufContents part = open_part(path);
    if (part.metadata.integer("split.no") != number) {
      fail(ErrorKind::BadFile, "{}: its split.no is not {}; the parts are mixed up", path.string(), number);
    }
    add_tensors(std::move(part.tensors));
  }

  void check_total() const {
    const auto total = metadata_->integer("split.tensors.count");
    if (total && *total != static_cast<int64_t>(tensors().size())) {
      fail(ErrorKind::BadFile, "{}: the parts hold {} tensors, split.tensors.count is {}", origin(), tensors().size(),
           *total);
    }
  }

  std::unique_ptr<GgufMetadata> metadata_;
  std::unique_ptr<Config> config_;
};

}  // namespace

std::unique_ptr<WeightSource> open_gguf(const std::filesystem::path& path) {
  return std::make_unique<GgufSource>(path);
}

}  // namespace millrace
