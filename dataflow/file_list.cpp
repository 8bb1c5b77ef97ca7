// SPDX-License-Identifier: Apache-2.0
#include "dataflow/file_list.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock {

FileList::FileList(std::string_view names, std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), lent_(names) {
  PENSTOCK_ASSERT(owner_ != nullptr && (names.empty() || names.back() == '\0'));
  for (std::size_t at = 0; at < names.size(); at = names.find('\0', at) + 1) mark(at);
}

void FileList::open_folder(std::string folder) { folders_.push_back({std::move(folder), size_}); }

void FileList::add(std::string_view name) {
  PENSTOCK_ASSERT(owner_ == nullptr);
  mark(names_.size());
  names_ += name;
  names_ += '\0';
}

void FileList::place_in(std::string folder, std::size_t count) {
  PENSTOCK_ASSERT(count <= size_ - placed_);
  folders_.push_back({std::move(folder), placed_});
  placed_ += count;
}

std::string FileList::path(std::size_t index) const {
  std::string whole;
  path(index, whole);
  return whole;
}

void FileList::path(std::size_t index, std::string& path) const {
  path.clear();
  // If several folders begin at the same file, all but the last are empty.
  const auto behind = std::ranges::upper_bound(folders_, index, {}, &Folder::first);
  if (behind != folders_.begin() && !std::prev(behind)->path.empty()) {
    path = std::prev(behind)->path;
    if (path.back() != '/') path += '/';
  }
  const std::string_view all = names();
  std::size_t at = marks_[index / kBetweenMarks];
  for (std::size_t skip = index % kBetweenMarks; skip > 0; --skip) at = all.find('\0', at) + 1;
  path += all.data() + at;
}

/// Marks every sixteenth name; this name begins at `offset`.
void FileList::mark(std::size_t offset) {
  if (size_++ % kBetweenMarks == 0) marks_.push_back(offset);
}

}  // namespace penstock
