// SPDX-License-Identifier: Apache-2.0
// Decompresses Deflate in the frames of gzip (RFC 1952) and zlib (RFC 1950).
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "dataflow/datasets/shard_stream.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

constexpr int kWindowBits = 15, kGzipFrame = 16;

class Inflater final : public Decompressor {
 public:
  Inflater(ByteStream& compressed, bool gzip) : compressed_(compressed), gzip_(gzip) {
    if (inflateInit2(&stream_, kWindowBits + (gzip ? kGzipFrame : 0)) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() override { inflateEnd(&stream_); }

  std::size_t produce(std::span<std::byte> to) override {
    while (!ended_) {
      if (stream_.avail_in == 0 && !refill()) break;
      if (behind_member_ && !begin_member()) break;
      const auto room =
          static_cast<uInt>(std::min<std::size_t>(to.size(), std::numeric_limits<uInt>::max()));
      stream_.next_out = reinterpret_cast<Bytef*>(to.data());
      stream_.avail_out = room;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        throw DataError(std::string("the compressed data are damaged: ") +
                        (stream_.msg != nullptr ? stream_.msg : "they cannot be inflated"));
      }
      behind_member_ = result == Z_STREAM_END;
      if (stream_.avail_out < room) return room - stream_.avail_out;
    }
    ended_ = true;
    return 0;
  }

 private:
  /// False: the file has ended at a valid place.
  bool refill() {
    const std::size_t count = compressed_.read(input_);
    if (count == 0 && !behind_member_) throw DataError("the compressed file is cut off");
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }
  /// Starts the next member of a gzip file, which may have several. Zeros after the last one are
  /// padding.
  bool begin_member() {
    if (!gzip_ || *stream_.next_in == 0) return false;
    behind_member_ = false;
    inflateReset(&stream_);
    return true;
  }

  ByteStream& compressed_;
  const bool gzip_;
  bool behind_member_ = false, ended_ = false;
  std::vector<std::byte> input_ = std::vector<std::byte>(std::size_t{128} << 10);
  z_stream stream_{};
};

}  // namespace

extern constinit const DecompressorEntry gzip_decompressor{
    .name = "gzip",
    .summary = "gzip files, such as .tar.gz",
    .make = [](ByteStream& compressed) -> std::unique_ptr<Decompressor> {
      return std::make_unique<Inflater>(compressed, true);
    },
};

extern constinit const DecompressorEntry zlib_decompressor{
    .name = "zlib",
    .summary = "zlib streams, as in TFRecord",
    .make = [](ByteStream& compressed) -> std::unique_ptr<Decompressor> {
      return std::make_unique<Inflater>(compressed, false);
    },
};

}  // namespace penstock::datasets
