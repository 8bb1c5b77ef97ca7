// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::datasets {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw ConfigError("the data file '{}' {}; expected a readable file of samples; check --data-dir",
                    path, problem);
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const InputFile file(path_.c_str());
  if (!file) refuse(path_, "cannot be read: " + file.problem());
  void* begin = nullptr;
  if (file.size() > 0) {
    begin = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  }
  if (begin == MAP_FAILED) refuse(path_, std::string("cannot be read: ") + std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(begin), static_cast<std::size_t>(file.size())};
}

MappedFile::MappedFile(std::string path, std::vector<std::byte> content)
    : path_(std::move(path)), content_(std::move(content)), bytes_(content_) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      content_(std::move(other.content_)),
      bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (is_mapped() && !bytes_.empty())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release_pages() const noexcept {
  if (!is_mapped() || bytes_.empty()) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace penstock::datasets
