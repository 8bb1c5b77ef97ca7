// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/file_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

/// Larger than any record, and small enough that sums with alignments do not overflow.
constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 32;

class PreadReader : public FileReader {
 protected:
  std::int64_t fill(int descriptor, std::span<std::byte> buffer,
                    std::uint64_t offset) const override {
    std::size_t done = 0;
    while (done < buffer.size()) {
      const ssize_t count = ::pread(descriptor, buffer.data() + done, buffer.size() - done,
                                    static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return -1;
      done += static_cast<std::size_t>(count);
      // A partial block ends the file, and O_DIRECT could not read on from it.
      if (count == 0 || done % kReadAlignment != 0) break;
    }
    return static_cast<std::int64_t>(done);
  }
};

class DirectReader final : public PreadReader {
 protected:
  int flags() const noexcept override { return O_DIRECT; }
};

/// Can the file be read past the page cache? Some file systems refuse when it is opened, others
/// when it is read.
bool takes_direct_reads(const char* path) {
  const InputFile file(path, O_DIRECT);
  errno = file.error();
  alignas(kReadAlignment) static thread_local std::byte block[kReadAlignment];
  return file && ::pread(file.descriptor(), block, sizeof block, 0) >= 0;
}

}  // namespace

SampleFile::SampleFile(const char* path, int flags) : path_(path), file_(path, flags) {
  if (!file_) refuse(file_.problem());
}

std::uint64_t SampleFile::size_to_read() const {
  const std::uint64_t size = file_.size();
  if (size == 0) refuse("it is empty");
  if (size > kMostBytes) {
    refuse(fmt::format("it has {} bytes, more than the limit of {}", size, kMostBytes));
  }
  return size;
}

void SampleFile::refuse(const std::string& problem) const {
  throw DataError("reading '{}': {}; expected a readable file; replace it", path_, problem);
}

std::span<const std::byte> FileReader::read_open(const SampleFile& file, std::uint64_t offset,
                                                 std::uint64_t count,
                                                 std::vector<std::byte>& storage) const {
  if (count > kMostAtOnce) file.refuse("it has too many bytes for one sample");
  const std::uint64_t begin = offset / kReadAlignment * kReadAlignment;
  const std::size_t ahead = static_cast<std::size_t>(offset - begin);
  const std::size_t size = (ahead + static_cast<std::size_t>(count) + kReadAlignment - 1) /
                           kReadAlignment * kReadAlignment;
  if (storage.size() < size + kReadAlignment) storage.resize(size + kReadAlignment);
  void* place = storage.data();
  std::size_t space = storage.size();
  auto* const buffer = static_cast<std::byte*>(std::align(kReadAlignment, size, place, space));
  const std::int64_t read = fill(file.descriptor(), {buffer, size}, begin);
  if (read < 0) file.refuse(std::strerror(errno));
  if (static_cast<std::uint64_t>(read) < ahead + count) {
    file.refuse(fmt::format("it ended after {} bytes", begin + static_cast<std::uint64_t>(read)));
  }
  return {buffer + ahead, static_cast<std::size_t>(count)};
}

std::span<const std::byte> FileReader::read(const char* path, std::uint64_t offset,
                                            std::uint64_t count,
                                            std::vector<std::byte>& storage) const {
  return read_open(SampleFile(path, flags()), offset, count, storage);
}

std::span<const std::byte> FileReader::read(const char* path,
                                            std::vector<std::byte>& storage) const {
  const SampleFile file(path, flags());
  return read_open(file, 0, file.size_to_read(), storage);
}

std::unique_ptr<FileReader> make_file_reader(const std::string& way, const char* probed,
                                             std::string& note) {
  if (way == "direct") {
    if (takes_direct_reads(probed)) return std::make_unique<DirectReader>();
    note = fmt::format(
        "io=direct: '{}' cannot be read past the page cache ({}); files are read through it, by "
        "pread",
        probed, std::strerror(errno));
  } else if (way == "uring") {
    if (std::unique_ptr<FileReader> reader = make_uring_reader()) return reader;
    note = fmt::format("io=uring: io_uring is unavailable ({}); files are read by pread",
                       std::strerror(errno));
  } else if (way != "pread") {
    throw ConfigError("queue: option 'io' is '{}'; expected pread, direct or uring", way);
  }
  return std::make_unique<PreadReader>();
}

}  // namespace penstock
