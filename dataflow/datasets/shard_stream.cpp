// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/shard_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::datasets {
namespace {

/// Reads a file without decompressing it.
class FileStream final : public ByteStream {
 public:
  FileStream(const std::string& path, std::stop_token stop)
      : stop_(std::move(stop)), file_(path.c_str()) {
    if (!file_) {
      throw ConfigError(
          "the data file '{}' cannot be read: {}; expected a readable file of samples; check "
          "--data-dir",
          path, file_.problem());
    }
    ::posix_fadvise(file_.descriptor(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  std::size_t read(std::span<std::byte> to) override {
    constexpr std::size_t kMost = 1U << 20;  // read between two checks for a stop request
    std::size_t done = 0;
    while (done < to.size()) {
      if (stop_.stop_requested()) throw StreamStopped{};
      const ssize_t count =
          ::read(file_.descriptor(), to.data() + done, std::min(to.size() - done, kMost));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw DataError(std::string("it cannot be read: ") + std::strerror(errno));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    position_ += done;
    return done;
  }

  std::uint64_t skip(std::uint64_t count) override {
    const off_t size = ::lseek(file_.descriptor(), 0, SEEK_END);
    const std::uint64_t left =
        size < 0 ? 0 : static_cast<std::uint64_t>(size) - std::min<std::uint64_t>(size, position_);
    count = std::min(count, left);
    position_ += count;
    if (::lseek(file_.descriptor(), static_cast<off_t>(position_), SEEK_SET) < 0) {
      throw DataError(std::string("it cannot be read: ") + std::strerror(errno));
    }
    return count;
  }

 private:
  const std::stop_token stop_;
  const InputFile file_;
};

class DecompressedStream final : public ByteStream {
 public:
  DecompressedStream(std::unique_ptr<ByteStream> file, const DecompressorEntry& entry,
                     std::stop_token stop)
      : stop_(std::move(stop)),
        file_(std::move(file)),
        decompressor_(entry.make(*file_)),
        skipped_(std::size_t{64} << 10) {}

  std::size_t read(std::span<std::byte> to) override {
    std::size_t done = 0;
    while (done < to.size()) {
      if (stop_.stop_requested()) throw StreamStopped{};
      const std::size_t count = decompressor_->produce(to.subspan(done));
      if (count == 0) break;
      done += count;
    }
    position_ += done;
    return done;
  }

  std::uint64_t skip(std::uint64_t count) override {
    std::uint64_t done = 0;
    while (done < count) {
      const std::uint64_t part = std::min<std::uint64_t>(count - done, skipped_.size());
      const std::size_t read_now = read(std::span(skipped_).first(part));
      done += read_now;
      if (read_now < part) break;
    }
    return done;
  }

 private:
  const std::stop_token stop_;
  const std::unique_ptr<ByteStream> file_;
  const std::unique_ptr<Decompressor> decompressor_;
  std::vector<std::byte> skipped_;
};

}  // namespace

std::string_view compression_by_magic(std::span<const std::byte> front) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(front[i]); };
  if (front.size() < 4) return {};
  if (byte(0) == 0x1f && byte(1) == 0x8b && byte(2) == 8) return "gzip";
  if (byte(0) == 0x28 && byte(1) == 0xb5 && byte(2) == 0x2f && byte(3) == 0xfd) return "zstd";
  // RFC 1950: deflate with a window of 32 KiB, and two bytes that are a multiple of 31.
  if (byte(0) == 0x78 && (byte(0) << 8 | byte(1)) % 31 == 0) return "zlib";
  return {};
}

std::unique_ptr<ByteStream> open_shard_stream(const std::string& path,
                                              std::string_view decompressor, std::stop_token stop) {
  auto file = std::make_unique<FileStream>(path, stop);
  if (decompressor.empty()) return file;
  const DecompressorEntry& entry = find_entry(decompressor_table(), decompressor);
  return std::make_unique<DecompressedStream>(std::move(file), entry, std::move(stop));
}

}  // namespace penstock::datasets
