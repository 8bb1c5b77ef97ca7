// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/sample_file.h"

#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

}  // namespace

SampleFile::SampleFile(const char* path, int flags) : path_(path), file_(path, flags) {
  if (!file_) refuse(file_.problem());
}

std::uint64_t SampleFile::size_to_read() const {
  const std::uint64_t size = file_.size();
  if (size == 0) refuse("it is empty");
  if (size > kMostBytes) {
    refuse("it has " + std::to_string(size) + " bytes, more than the limit of " +
           std::to_string(kMostBytes));
  }
  return size;
}

void SampleFile::refuse(const std::string& problem) const {
  throw DataError("reading '" + std::string(path_) + "': " + problem +
                  "; expected a readable file; replace it");
}

}  // namespace penstock
