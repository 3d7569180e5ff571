// A copy of a golden folder whose config is changed by `edit`.
#pragma once

#include "models/golden.h"

namespace millrace {

class EditedModel {
 public:
  template <class Edit>
  explicit EditedModel(Edit edit, const std::string& name = "llama_gqa")
      : folder_(std::filesystem::path(testing::TempDir()) / ("millrace_edited_" + name)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const auto golden = goldens_folder() / name;
    std::filesystem::copy_file(golden / "model.safetensors", folder_ / "model.safetensors");
    std::ifstream in(golden / "config.json");
    auto config = nlohmann::json::parse(in);
    edit(config);
    std::ofstream(folder_ / "config.json") << config;
  }
  ~EditedModel() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace millrace
