#include "formats/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "base/error.h"
#include "formats/byte_cursor.h"
#include "formats/ggml_types.h"

namespace millrace {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr int kDeepestArray = 8;
constexpr uint32_t kMostGgufDimensions = 4;
constexpr uint64_t kLongestName = 4096;

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& origin)
      : file_(file), origin_(origin), cursor_(file, origin) {}

  GgufContents read() {
    read_header();
    GgufContents contents{GgufMetadata(origin_), {}};
    const auto tensors = cursor_.count(24, "tensors");
    const auto entries = cursor_.count(13, "metadata entries");
    for (uint64_t i = 0; i < entries; ++i) read_entry(contents.metadata);
    std::vector<Place> places;
    for (uint64_t i = 0; i < tensors; ++i) places.push_back(read_tensor(contents.tensors.emplace_back()));
    locate(contents, places);
    return contents;
  }

 private:
  struct Place {
    const GgmlType* type;  // null: unknown
    uint64_t offset;       // from the start of the data section
  };

  void read_header() {
    const auto magic = cursor_.read<uint32_t>("the header");
    if (magic != kMagic) fail(ErrorKind::BadFile, "{}: not a GGUF file", origin_);
    const auto version = cursor_.read<uint32_t>("the header");
    if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3)) {
      fail(ErrorKind::Unsupported, "{}: a big-endian GGUF file; convert it with gguf-convert-endian from PyPI's gguf",
           origin_);
    }
    if (version != 2 && version != 3) {
      fail(ErrorKind::Unsupported, "{}: GGUF version {}; versions 2 and 3 can be read", origin_, version);
    }
  }

  std::string_view read_string(uint64_t longest, std::string_view what) {
    const auto length = cursor_.read<uint64_t>(what);
    if (length > longest) fail(ErrorKind::BadFile, "{}: {} of {} bytes", origin_, what, length);
    const auto bytes = cursor_.take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  GgufType read_type(std::string_view key) {
    const auto type = cursor_.read<uint32_t>("a value's type");
    if (type > static_cast<uint32_t>(GgufType::F64)) {
      fail(ErrorKind::BadFile, "{}: '{}' has the unknown type {}", origin_, key, type);
    }
    return static_cast<GgufType>(type);
  }

  void read_entry(GgufMetadata& metadata) {
    const auto key = read_string(kLongestName, "a metadata key");
    const GgufType type = read_type(key);
    const size_t begin = cursor_.position();
    skip_value(type, key, 0);
    metadata.add(key, GgufValue(type, file_.subspan(begin, cursor_.position() - begin)));
  }

  void skip_value(GgufType type, std::string_view key, int depth) {
    if (type == GgufType::String) {
      cursor_.take(cursor_.read<uint64_t>("a string"), "a string");
    } else if (type == GgufType::Array) {
      skip_array(key, depth + 1);
    } else {
      cursor_.take(scalar_bytes(type), "a value");
    }
  }

  void skip_array(std::string_view key, int depth) {
    if (depth > kDeepestArray) {
      fail(ErrorKind::BadFile, "{}: '{}' nests arrays deeper than {}", origin_, key, kDeepestArray);
    }
    const GgufType element = read_type(key);
    if (const size_t bytes = scalar_bytes(element); bytes != 0) {
      cursor_.take(cursor_.count(bytes, "array elements") * bytes, "an array");
      return;
    }
    const auto count = cursor_.count(element == GgufType::String ? 8 : 12, "array elements");
    for (uint64_t i = 0; i < count; ++i) skip_value(element, key, depth);
  }

  Place read_tensor(TensorInfo& tensor) {
    tensor.name = read_string(kLongestName, "a tensor's name");
    const auto dimensions = cursor_.read<uint32_t>("a tensor's shape");
    if (dimensions > kMostGgufDimensions) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' has {} dimensions", origin_, tensor.name, dimensions);
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      tensor.shape.push_back(static_cast<int64_t>(cursor_.read<uint64_t>("a tensor's shape")));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());  // the file lists the innermost dimension first
    if (!element_count(tensor.shape)) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' has the impossible shape {}", origin_, tensor.name,
           to_string(tensor.shape));
    }
    const auto id = cursor_.read<uint32_t>("a tensor's type");
    const GgmlType* type = find_ggml_type(id);
    tensor.dtype = dtype_from_ggml(id);
    tensor.dtype_name = type != nullptr ? std::string(type->name) : fmt::format("type {}", id);
    return {type, cursor_.read<uint64_t>("a tensor's offset")};
  }

  uint64_t read_alignment(const GgufMetadata& metadata) const {
    const auto value = metadata.integer("general.alignment");
    if (!value) return kDefaultAlignment;
    const auto alignment = static_cast<uint64_t>(*value);
    if (*value <= 0 || !std::has_single_bit(alignment) || alignment > (uint64_t{1} << 30)) {
      fail(ErrorKind::BadFile, "{}: general.alignment is {}, not a power of two", origin_, *value);
    }
    return alignment;
  }

  void locate(GgufContents& contents, const std::vector<Place>& places) const {
    const uint64_t alignment = read_alignment(contents.metadata);
    const uint64_t start = (cursor_.position() + alignment - 1) / alignment * alignment;
    const auto data = start < file_.size() ? file_.subspan(start) : std::span<const std::byte>();
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < places.size(); ++i) {
      TensorInfo& tensor = contents.tensors[i];
      if (!names.insert(tensor.name).second) {
        fail(ErrorKind::BadFile, "{}: tensor '{}' appears twice", origin_, tensor.name);
      }
      if (places[i].offset % alignment != 0) {
        fail(ErrorKind::BadFile, "{}: tensor '{}' starts at {}, which is not aligned to {}", origin_, tensor.name,
             places[i].offset, alignment);
      }
      const auto bytes = tensor_bytes(tensor, places[i], data);
      tensor.data = bytes.data();
      tensor.bytes = bytes.size();
    }
    check_apart(contents.tensors, origin_);
  }

  std::span<const std::byte> tensor_bytes(const TensorInfo& tensor, Place place,
                                          std::span<const std::byte> data) const {
    if (place.offset > data.size()) fail_truncated(tensor, place.offset, data.size());
    const auto rest = data.subspan(static_cast<size_t>(place.offset));
    if (place.type == nullptr) return rest.first(0);  // unknown type, unknown size
    const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (cols % place.type->block != 0) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' has rows of {}, not a multiple of {}'s block of {}", origin_,
           tensor.name, cols, tensor.dtype_name, place.type->block);
    }
    const auto blocks = static_cast<uint64_t>(*element_count(tensor.shape)) / static_cast<uint64_t>(place.type->block);
    const auto block_bytes = static_cast<uint64_t>(place.type->bytes);
    if (blocks > rest.size() / block_bytes) fail_truncated(tensor, place.offset, data.size());
    return rest.first(static_cast<size_t>(blocks * block_bytes));
  }

  [[noreturn]] void fail_truncated(const TensorInfo& tensor, uint64_t offset, size_t available) const {
    fail(ErrorKind::BadFile,
         "{}: tensor '{}' ({} {} at {}) reaches beyond the {} bytes of data in the file; is it truncated?", origin_,
         tensor.name, tensor.dtype_name, to_string(tensor.shape), offset, available);
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  ByteCursor cursor_;
};

}  // namespace

GgufContents read_gguf(std::span<const std::byte> file, const std::string& origin) {
  return Reader(file, origin).read();
}

}  // namespace millrace
