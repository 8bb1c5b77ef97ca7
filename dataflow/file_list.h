// SPDX-License-Identifier: Apache-2.0
// Many paths in one block of memory: eight bytes a file beside its path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class FileList {
 public:
  void add(std::string_view path) {
    offsets_.push_back(paths_.size());
    paths_ += path;
    paths_ += '\0';
  }
  std::size_t size() const noexcept { return offsets_.size(); }
  /// Closed by a zero; lives as long as the list does not change.
  const char* path(std::size_t index) const noexcept { return paths_.data() + offsets_[index]; }
  void shrink_to_fit() {
    paths_.shrink_to_fit();
    offsets_.shrink_to_fit();
  }

 private:
  std::string paths_;  // each closed by a zero
  std::vector<std::uint64_t> offsets_;
};

}  // namespace penstock
