#include "engine/measure/saved_logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

struct FileHeader {  // little endian, as all numbers of the file
  std::array<char, 8> magic{'M', 'R', 'L', 'O', 'G', 'I', 'T', '1'};
  uint32_t vocab = 0, context = 0;
  uint64_t rows = 0;
  uint64_t text = 0;  // hash of the tokens

  bool operator==(const FileHeader&) const = default;
};

struct RowHeader {
  float low = 0, step = 0;
};

uint64_t hash_of(const ScoredText& text) {
  uint64_t hash = static_cast<uint64_t>(text.bos) ^ 0xCBF29CE484222325u;
  for (const int32_t token : text.tokens.first(static_cast<size_t>(text.windows() * text.context)))
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001B3u;
  return hash;
}

FileHeader header_of(const ScoredText& text, int64_t vocab) {
  FileHeader header;
  header.vocab = static_cast<uint32_t>(vocab);
  header.context = static_cast<uint32_t>(text.context);
  header.rows = static_cast<uint64_t>(text.rows());
  header.text = hash_of(text);
  return header;
}

uint64_t row_bytes(const FileHeader& header) { return sizeof(RowHeader) + uint64_t{header.vocab} * sizeof(uint16_t); }

}  // namespace

LogitsWriter::LogitsWriter(std::filesystem::path path, const ScoredText& text, int64_t vocab)
    : path_(std::move(path)), part_(path_.string() + ".part"), steps_(static_cast<size_t>(vocab)) {
  out_.open(part_, std::ios::binary | std::ios::trunc);
  const FileHeader header = header_of(text, vocab);
  out_.write(reinterpret_cast<const char*>(&header), sizeof header);
  if (!out_) fail_errno("cannot write " + part_.string());
}

LogitsWriter::~LogitsWriter() {
  std::error_code error;
  if (!finished_) std::filesystem::remove(part_, error);
}

void LogitsWriter::add(std::span<const float> logits) {
  float low = INFINITY, high = -INFINITY;  // of the finite ones
  bool damaged = false;
  for (const float logit : logits) {
    damaged = damaged || std::isnan(logit);
    if (!std::isfinite(logit)) continue;
    low = std::min(low, logit);
    high = std::max(high, logit);
  }
  if (damaged || low > high) fail(ErrorKind::BadFile, "the model gives no finite logits: its weights are damaged");
  const RowHeader row{low, (high - low) / 65535};
  const float scale = row.step > 0 ? 1 / row.step : 0;
  std::ranges::transform(logits, steps_.begin(), [&](float logit) {
    return static_cast<uint16_t>(std::clamp(std::nearbyint((logit - low) * scale), 0.0F, 65535.0F));
  });
  out_.write(reinterpret_cast<const char*>(&row), sizeof row);
  out_.write(reinterpret_cast<const char*>(steps_.data()),
             static_cast<std::streamsize>(steps_.size() * sizeof steps_[0]));
  if (!out_) fail_errno("cannot write " + part_.string());
}

void LogitsWriter::finish() {
  out_.close();
  if (!out_) fail_errno("cannot write " + part_.string());
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error) fail(ErrorKind::Io, "cannot write {}: {}", path_.string(), error.message());
  finished_ = true;
}

LogitsReader::LogitsReader(const std::filesystem::path& path, const ScoredText& text, int64_t vocab)
    : file_(path), at_(sizeof(FileHeader)), row_(static_cast<size_t>(vocab)) {
  FileHeader header;
  const auto bytes = file_.bytes();
  if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
  if (bytes.size() < sizeof header || header.magic != FileHeader().magic)
    fail(ErrorKind::BadFile, "{}: is no file of perplexity --save-logits", path.string());
  const FileHeader wanted = header_of(text, vocab);
  if (header.vocab != wanted.vocab)
    fail(ErrorKind::Usage, "{}: has logits of {} tokens, this model has {}", path.string(), header.vocab, vocab);
  if (!(header == wanted))
    fail(ErrorKind::Usage, "{}: was saved for another text, --ctx or --chunks, or another tokenizer", path.string());
  if (bytes.size() - sizeof header != header.rows * row_bytes(header))
    fail(ErrorKind::BadFile, "{}: is cut off or has bytes behind its end", path.string());
}

std::span<const float> LogitsReader::next() {
  const std::byte* from = file_.bytes().data() + at_;
  RowHeader row;
  std::memcpy(&row, from, sizeof row);
  from += sizeof row;
  for (float& logit : row_) {
    uint16_t steps = 0;
    std::memcpy(&steps, from, sizeof steps);
    from += sizeof steps;
    logit = row.low + row.step * static_cast<float>(steps);
  }
  at_ += sizeof row + row_.size() * sizeof(uint16_t);
  if (!std::isfinite(row.low) || !std::isfinite(row.step))
    fail(ErrorKind::BadFile, "{}: has a row that is not finite", file_.path().string());
  return row_;
}

}  // namespace millrace
