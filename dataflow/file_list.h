// SPDX-License-Identifier: Apache-2.0
// Holds many paths in little memory: each folder once, and all names one after another in one
// block, which may be part of a mapped file. A file costs half a byte besides its name and the
// closing zero.
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
  /// Takes the names in `names`, each closed by a zero; `owner` keeps them in memory. The files
  /// have no folders yet; place_in() assigns them, from the first file on.
  FileList(std::string_view names, std::shared_ptr<const void> owner);

  /// Files added from now on are in `folder`. If it is empty, names are whole paths.
  void open_folder(std::string folder);
  void add(std::string_view name);
  /// Puts the next `count` files that have no folder into `folder`.
  void place_in(std::string folder, std::size_t count);

  std::size_t size() const noexcept { return size_; }
  /// All names, each closed by a zero.
  std::string_view names() const noexcept { return owner_ ? lent_ : std::string_view(names_); }
  std::string path(std::size_t index) const;
  /// Writes the path into `path`, which keeps its capacity.
  void path(std::size_t index, std::string& path) const;

 private:
  struct Folder {
    std::string path;
    std::size_t first = 0;  // index of its first file
  };
  static constexpr std::size_t kBetweenMarks = 16;

  void mark(std::size_t offset);

  std::shared_ptr<const void> owner_;  // keeps lent_ in memory; null: names_ is used
  std::string_view lent_;
  std::string names_;
  std::vector<std::uint64_t> marks_;  // offset of every sixteenth name
  std::vector<Folder> folders_;       // none: names are whole paths
  std::size_t size_ = 0, placed_ = 0;
};

}  // namespace penstock
