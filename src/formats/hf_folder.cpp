#include "formats/hf_folder.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/folder_quantization.h"
#include "formats/gpt_oss_experts.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestText = 256u << 20;  // tokenizer.json of a large vocabulary takes tens of MB
constexpr uintmax_t kLargestConfig = 4u << 20;
constexpr uintmax_t kLargestIndex = 32u << 20;  // a hundred bytes per tensor: more than any model has

std::optional<std::string> read_text(const fs::path& path, uintmax_t largest) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const MappedFile file(path);
  if (file.bytes().size() > largest) fail(ErrorKind::BadFile, "{}: larger than {} bytes", path.string(), largest);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

bool is_there(const fs::path& path) {
  std::error_code error;  // an unreadable path counts as absent
  return fs::exists(path, error);
}

// The weight files of a folder, in reading order.
std::vector<std::string> safetensors_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class HfFolder : public WeightSource {
 public:
  explicit HfFolder(const fs::path& folder) : WeightSource(folder.string()), folder_(folder) {
    if (const auto config = read_text(folder / "config.json", kLargestConfig)) {
      config_ = std::make_unique<Config>(Config::from_hf(*config, (folder / "config.json").string()));
    }
    const fs::path index = folder / "model.safetensors.index.json";
    const auto names = safetensors_files(folder);
    if (is_there(folder / "model.safetensors")) {
      add_file("model.safetensors");
    } else if (const auto text = read_text(index, kLargestIndex)) {
      add_shards(*text, index.string());
    } else if (names.size() == 1) {
      add_file(names.front());
    } else if (!names.empty()) {
      fail(ErrorKind::BadFile, "{}: several .safetensors files, but no model.safetensors.index.json to go by",
           origin());
    }
    add_modules();
    derive(quantized_tensors(tensors(), config_.get(), origin()));
    derive(gpt_oss_tensors(tensors(), config_.get()));
  }

  Convention convention() const override { return Convention::HuggingFace; }

  const Config& config() const override {
    if (config_ == nullptr) fail(ErrorKind::NotFound, "{}: the folder has no config.json", origin());
    return *config_;
  }

  std::optional<std::string> text(std::string_view file_name) const override {
    return read_text(folder_ / file_name, kLargestText);
  }

 private:
  [[noreturn]] void fail_absent(std::string_view name) const override {
    if (!tensors().empty()) WeightSource::fail_absent(name);
    const bool pickled = is_there(folder_ / "pytorch_model.bin") || is_there(folder_ / "pytorch_model.bin.index.json");
    fail(ErrorKind::NotFound, "{}: the folder has no .safetensors files{}", origin(),
         pickled ? "; pytorch_model.bin cannot be read, save the model with safe_serialization=True" : "");
  }

  void add_file(const std::string& name) {
    const MappedFile& file = map_file(folder_ / name);
    add_tensors(read_safetensors(file.bytes(), file.path().string()));
  }

  // The dense modules of a sentence-transformers folder, under the names of their folders: "2_Dense.linear.weight".
  void add_modules() {
    const auto text = read_text(folder_ / "modules.json", kLargestConfig);
    if (!text) return;
    const nlohmann::json modules = parse_json(*text, (folder_ / "modules.json").string());
    for (const auto& module : modules) {
      const auto path = module.is_object() ? module.find("path") : module.end();
      if (path == module.end() || !path->is_string()) continue;
      const auto& name = path->get_ref<const std::string&>();
      if (name.empty()) continue;
      if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name.starts_with('.'))
        fail(ErrorKind::BadFile, "{}: modules.json: '{}' is not the name of a folder beside it", origin(), name);
      if (!is_there(folder_ / name / "model.safetensors")) continue;
      const MappedFile& file = map_file(folder_ / name / "model.safetensors");
      auto tensors = read_safetensors(file.bytes(), file.path().string());
      for (TensorInfo& tensor : tensors) tensor.name = name + "." + tensor.name;
      add_tensors(std::move(tensors));
    }
  }

  void add_shards(const std::string& text, const std::string& origin) {
    const nlohmann::json index = parse_json(text, origin);
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (map == index.end() || !map->is_object()) fail(ErrorKind::BadFile, "{}: there is no weight_map", origin);
    std::set<std::string> names;
    for (const auto& item : map->items()) {
      if (!item.value().is_string()) fail(ErrorKind::BadFile, "{}: '{}' names no file", origin, item.key());
      const auto& name = item.value().get_ref<const std::string&>();
      // A shard must be in the index's folder: refuse names that are paths.
      if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
        fail(ErrorKind::BadFile, "{}: '{}' is not the name of a file beside it", origin, name);
      }
      names.insert(name);
    }
    for (const std::string& name : names) add_file(name);
    for (const auto& item : map->items()) {
      if (!has(item.key())) {
        fail(ErrorKind::BadFile, "{}: tensor '{}' is not in {}", origin, item.key(), item.value().get<std::string>());
      }
    }
  }

  fs::path folder_;
  std::unique_ptr<Config> config_;
};

}  // namespace

std::unique_ptr<WeightSource> open_hf_folder(const fs::path& folder) { return std::make_unique<HfFolder>(folder); }

}  // namespace millrace
