// SPDX-License-Identifier: Apache-2.0
#include "dataflow/packed/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dataflow/error.h"

namespace penstock {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw ConfigError("the data file '" + path + "' " + problem +
                    "; expected a readable file of samples; check --data-dir");
}

/// Why opening or mapping failed, from errno.
[[noreturn]] void refuse_for_errno(const std::string& path) {
  refuse(path, std::string("cannot be read: ") + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse_for_errno(path_);
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  const auto size = known ? static_cast<std::size_t>(status.st_size) : 0;
  void* begin = nullptr;
  if (known && S_ISREG(status.st_mode) && size > 0) {
    begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (!known || begin == MAP_FAILED) refuse_for_errno(path_);
  if (!S_ISREG(status.st_mode)) refuse(path_, "is no regular file");
  bytes_ = {static_cast<const std::byte*>(begin), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::will_need(std::uint64_t offset, std::uint64_t count) const noexcept {
  if (offset >= bytes_.size()) return;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end = offset + std::min<std::uint64_t>(count, bytes_.size() - offset);
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_WILLNEED);
}

void MappedFile::let_go() const noexcept {
  if (bytes_.empty()) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace penstock
