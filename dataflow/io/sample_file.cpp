// SPDX-License-Identifier: Apache-2.0
#include "dataflow/io/sample_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

}  // namespace

SampleFile::SampleFile(const char* path, int flags)
    : path_(path), descriptor_(::open(path, O_RDONLY | O_CLOEXEC | flags)) {
  if (descriptor_ < 0) refuse(std::strerror(errno));
}

SampleFile::~SampleFile() { ::close(descriptor_); }

std::uint64_t SampleFile::size_to_read() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("it is no regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0) refuse("it is empty");
  if (size > kMostBytes) {
    refuse("it has " + std::to_string(size) + " bytes, more than the limit of " +
           std::to_string(kMostBytes));
  }
  return size;
}

void SampleFile::refuse(const std::string& problem) const {
  throw DataError("reading '" + std::string(path_) + "': " + problem +
                  "; expected a readable file; replace it, or pass --on-bad-sample skip");
}

}  // namespace penstock
