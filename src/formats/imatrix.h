// An importance matrix: for each weight matrix the mean squares of its input columns over a text, in the format of
// llama.cpp's llama-imatrix (GGUF: NAME.in_sum2 [experts, columns] and NAME.counts [experts, 1]).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/tensor_info.h"

namespace millrace {

// The content of such a file.
struct ImatrixSums {
  struct Entry {
    int64_t columns = 0;
    std::vector<float> squares;  // [experts][columns]: sums over rows
    std::vector<float> counts;   // [experts]: rows; a dense matrix counts as one expert
  };
  std::vector<std::string> datasets;  // names of the texts
  uint32_t chunks = 0, chunk_size = 0;
  std::map<std::string, Entry, std::less<>> entries;  // by the matrix's name in GGUF files
};

// Throws BadFile, with the tensor's name, for a file that is no importance matrix or holds implausible numbers.
ImatrixSums read_imatrix(const std::string& path);
void write_imatrix(const std::filesystem::path& path, const ImatrixSums& sums);

class Imatrix {
 public:
  Imatrix(std::string path, const ImatrixSums& sums);  // `path`: for messages, and for the keys below
  static Imatrix read(const std::string& path) { return {path, read_imatrix(path)}; }

  // The importance of the columns of a matrix [rows, columns], or of [experts, rows, columns] for each expert; relative
  // to their mean, and never zero. Empty: the text did not reach the matrix. Throws Usage, with the name, if the sizes
  // are not those of the tensor.
  std::span<const float> of(const GgufTensor& tensor) const;

  // Throws Usage if it has no matrix of the model: it belongs to another one.
  void check_belongs_to(std::span<const TensorInfo> tensors) const;

  // Keys that llama.cpp's quantizer writes.
  void describe(GgufMetadataBuilder& out) const;

 private:
  struct Entry {
    int64_t experts = 0, columns = 0;
    std::vector<float> importance;  // [experts][columns]
  };
  std::string path_;
  std::vector<std::string> datasets_;
  uint32_t chunks_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace millrace
