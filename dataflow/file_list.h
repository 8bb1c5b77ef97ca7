// SPDX-License-Identifier: Apache-2.0
// Many paths in little memory: each folder once, and names behind each other in one block, which
// may be that of a mapped file. Half a byte a file beside its name and the zero that closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class FileList {
 public:
  FileList() = default;
  /// Files without a folder yet whose names lie in `names`, each closed by a zero, and which
  /// `owner` keeps there. They are given folders by place_in(), from the first one on.
  FileList(std::string_view names, std::shared_ptr<const void> owner);

  /// What is added from here on lies in `folder`; empty: names are whole paths.
  void open_folder(std::string folder);
  void add(std::string_view name);
  /// The next `count` files without a folder lie in `folder`.
  void place_in(std::string folder, std::size_t count);

  std::size_t size() const noexcept { return size_; }
  /// All names, each closed by a zero.
  std::string_view names() const noexcept { return owner_ ? lent_ : std::string_view(names_); }
  std::string path(std::size_t index) const;
  /// Fills `path`, which keeps its capacity.
  void path(std::size_t index, std::string& path) const;

 private:
  struct Folder {
    std::string path;
    std::size_t first = 0;  // of its files
  };
  static constexpr std::size_t kBetweenMarks = 16;

  void mark(std::size_t offset);

  std::shared_ptr<const void> owner_;  // of lent_; null: names are our own
  std::string_view lent_;
  std::string names_;
  std::vector<std::uint64_t> marks_;  // where every sixteenth name begins
  std::vector<Folder> folders_;       // none: names are whole paths
  std::size_t size_ = 0, placed_ = 0;
};

}  // namespace penstock
