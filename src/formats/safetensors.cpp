#include "formats/safetensors.h"

#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "formats/byte_cursor.h"

namespace millrace {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // limit of the safetensors library
constexpr size_t kMostDimensions = 8;

struct SafetensorsType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

// All dtypes that a header may name. Those without a DType cannot run; no supported model uses them.
constexpr std::array kSafetensorsTypes{
    SafetensorsType{"F32", 32, DType::F32},
    SafetensorsType{"F16", 16, DType::F16},
    SafetensorsType{"BF16", 16, DType::BF16},
    SafetensorsType{"F64", 64, {}},
    SafetensorsType{"I64", 64, {}},
    SafetensorsType{"U64", 64, {}},
    SafetensorsType{"C64", 64, {}},
    SafetensorsType{"I32", 32, {}},
    SafetensorsType{"U32", 32, {}},
    SafetensorsType{"I16", 16, {}},
    SafetensorsType{"U16", 16, {}},
    SafetensorsType{"I8", 8, {}},
    SafetensorsType{"U8", 8, {}},
    SafetensorsType{"BOOL", 8, {}},
    SafetensorsType{"F8_E4M3", 8, {}},
    SafetensorsType{"F8_E5M2", 8, {}},
    SafetensorsType{"F8_E8M0", 8, {}},
    SafetensorsType{"F8_E4M3FNUZ", 8, {}},
    SafetensorsType{"F8_E5M2FNUZ", 8, {}},
    SafetensorsType{"F6_E2M3", 6, {}},
    SafetensorsType{"F6_E3M2", 6, {}},
    SafetensorsType{"F4", 4, {}},
};

const SafetensorsType* find_type(std::string_view name) {
  const auto found = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                                  [&](const SafetensorsType& t) { return t.name == name; });
  return found == kSafetensorsTypes.end() ? nullptr : found;
}

// Consumes the header's JSON as SAX events and builds only the tensor list, so a hostile header costs at most a few
// times its size in memory.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(std::span<const std::byte> data, const std::string& origin) : data_(data), origin_(origin) {}

  std::vector<TensorInfo> finish() && { return std::move(tensors_); }

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_float(double, const std::string&) override { return scalar("a fraction"); }
  bool binary(binary_t&) override { return scalar("binary data"); }
  bool number_integer(int64_t value) override { fail_here(fmt::format("the negative number {}", value)); }
  bool number_unsigned(uint64_t value) override {
    if (in_metadata_) return true;
    if (list_ == nullptr) fail_here("a number outside a list");
    if (list_->size() == kMostDimensions) fail_here("a list that is too long");
    if (value > uint64_t{INT64_MAX}) fail_here("a number that is too large");
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(std::string& value) override {
    if (in_metadata_) return true;
    if (depth_ != 2 || field_ != "dtype" || !tensor_.dtype_name.empty()) fail_here("a text in the wrong place");
    type_ = find_type(value);
    if (type_ == nullptr) fail_here(fmt::format("the unknown dtype '{}'", value));
    tensor_.dtype_name = value;
    tensor_.dtype = type_->dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (++depth_ > 2) fail_here("an object inside a tensor");
    if (depth_ == 2) begin_entry();
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ == 1) {
      name_ = value;
      if (!names_.insert(name_).second) fail_here("a second entry of that name");
    }
    field_ = value;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) finish_tensor();
    in_metadata_ = false;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) fail_here("a list in the wrong place");
    if (field_ == "shape") {
      list_ = &tensor_.shape;
    } else if (field_ == "data_offsets") {
      list_ = &offsets_;
    } else {
      fail_here(fmt::format("the unknown field '{}'", field_));
    }
    if (!list_->empty()) fail_here("a field that is given twice");
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(ErrorKind::BadFile, "{}: the header is not valid JSON from byte {} on", origin_, position);
  }

 private:
  [[noreturn]] void fail_here(std::string_view what) const {
    fail(ErrorKind::BadFile, "{}: the header has {} at '{}'", origin_, what, name_);
  }

  bool scalar(std::string_view what) const {
    if (!in_metadata_) fail_here(what);
    return true;
  }

  void begin_entry() {
    in_metadata_ = name_ == "__metadata__";
    tensor_ = {};
    tensor_.name = name_;
    offsets_.clear();
    type_ = nullptr;
  }

  void finish_tensor() {
    if (type_ == nullptr || offsets_.size() != 2) fail_here("no dtype or data_offsets");
    const auto begin = static_cast<uint64_t>(offsets_[0]), end = static_cast<uint64_t>(offsets_[1]);
    if (begin > end || end > data_.size()) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' lies at [{}, {}) of {} bytes of data; is the file truncated?", origin_,
           name_, begin, end, data_.size());
    }
    const auto count = element_count(tensor_.shape);
    uint64_t bits = 0;
    if (!count || __builtin_mul_overflow(static_cast<uint64_t>(*count), type_->bits, &bits) ||
        bits / 8 + (bits % 8 != 0) != end - begin) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' is {} {}, which does not take {} bytes", origin_, name_,
           tensor_.dtype_name, to_string(tensor_.shape), end - begin);
    }
    tensor_.data = data_.data() + begin;
    tensor_.bytes = static_cast<size_t>(end - begin);
    tensors_.push_back(std::move(tensor_));
  }

  std::span<const std::byte> data_;
  const std::string& origin_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_, field_;
  TensorInfo tensor_;
  const SafetensorsType* type_ = nullptr;
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* list_ = nullptr;  // the list being read
  std::unordered_set<std::string> names_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

std::vector<TensorInfo> read_safetensors(std::span<const std::byte> file, const std::string& origin) {
  ByteCursor cursor(file, origin);
  const auto length = cursor.read<uint64_t>("the header's length");
  if (length > kLongestHeader) {
    fail(ErrorKind::BadFile, "{}: a header of {} bytes: not a safetensors file", origin, length);
  }
  const auto header = cursor.take(length, "the header");
  const auto* text = reinterpret_cast<const char*>(header.data());
  if (length == 0 || text[0] != '{') fail(ErrorKind::BadFile, "{}: no JSON header: not a safetensors file", origin);
  HeaderParser parser(file.subspan(cursor.position()), origin);
  nlohmann::json::sax_parse(text, text + length, &parser);
  auto tensors = std::move(parser).finish();
  check_apart(tensors, origin);
  return tensors;
}

}  // namespace millrace
