#include "server/model_table.h"

#include <utility>

namespace millrace {

int64_t ModelTable::held() const {
  int64_t bytes = 0;
  for (const Row& row : rows_) {
    if (row.state == State::Loaded || row.state == State::Unloading) bytes += row.bytes;
  }
  return bytes;
}

bool ModelTable::take(size_t model) {
  Row& row = rows_[model];
  if (row.state != State::Loaded || leaving_ == model) return false;
  ++row.leases;
  row.used = ++uses_;
  return true;
}

void ModelTable::release(size_t model) {
  --rows_[model].leases;
  rows_[model].used = ++uses_;
}

void ModelTable::begin_load(size_t model) {
  rows_[model].state = State::Loading;
  rows_[model].bytes = 0;
  rows_[model].problem.clear();
}

ModelTable::Room ModelTable::reserve(size_t model, int64_t bytes, int64_t limit, size_t& victim) {
  leaving_.reset();
  if (bytes > limit) return Room::TooLarge;
  rows_[model].bytes = bytes;
  if (held() + bytes <= limit) return Room::Granted;
  std::optional<size_t> idle, busy;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].state != State::Loaded) continue;
    std::optional<size_t>& oldest = rows_[i].leases == 0 ? idle : busy;
    if (!oldest || rows_[i].used < rows_[*oldest].used) oldest = i;
  }
  if (!idle) {
    leaving_ = busy;
    return Room::Wait;
  }
  victim = *idle;
  rows_[victim].state = State::Unloading;
  return Room::Evict;
}

void ModelTable::loaded(size_t model) {
  rows_[model].state = State::Loaded;
  rows_[model].used = ++uses_;
  leaving_.reset();
}

void ModelTable::failed(size_t model, std::string problem) {
  rows_[model].state = State::Unloaded;
  rows_[model].bytes = 0;
  rows_[model].problem = std::move(problem);
  leaving_.reset();
}

void ModelTable::unloaded(size_t model) {
  rows_[model].state = State::Unloaded;
  rows_[model].bytes = 0;
}

}  // namespace millrace
