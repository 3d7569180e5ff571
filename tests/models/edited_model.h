// A copy of a golden folder whose config is changed by `edit`, and whose table of tensors by `edit_tensors`.
#pragma once

#include <cstring>

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
  // Changes what the file says about its tensors: {name: {"dtype", "shape", "data_offsets"}}. Their data stay.
  template <class Edit>
  EditedModel& edit_tensors(Edit edit) {
    const auto path = folder_ / "model.safetensors";
    std::ifstream in(path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    auto table = nlohmann::json::parse(file.substr(sizeof length, length));
    edit(table);
    const std::string header = table.dump();
    const uint64_t written = header.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&written), sizeof written);
    out << header << std::string_view(file).substr(sizeof length + length);
    return *this;
  }
  ~EditedModel() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace millrace
