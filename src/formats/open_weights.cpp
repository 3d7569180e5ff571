#include <filesystem>

#include "base/error.h"
#include "formats/gguf_source.h"
#include "formats/hf_folder.h"
#include "formats/synthetic.h"
#include "formats/weight_source.h"

namespace millrace {

std::unique_ptr<WeightSource> open_weights(const std::string& model) {
  if (model.starts_with(kSyntheticPrefix)) return open_synthetic(model);
  const std::filesystem::path path(model);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(ErrorKind::NotFound, "{}: no such file or folder", model);
  if (!std::filesystem::is_directory(status)) {
    if (path.extension() == ".safetensors") {
      fail(ErrorKind::Usage, "{}: give the folder that holds it: config.json is needed too", model);
    }
    return open_gguf(path);
  }
  if (std::filesystem::exists(path / "config.json", error) || std::filesystem::exists(path / "tokenizer.json", error)) {
    return open_hf_folder(path);
  }
  fail(ErrorKind::NotFound, "{}: the folder has no config.json; for a GGUF model give the file itself", model);
}

}  // namespace millrace
