// SPDX-License-Identifier: Apache-2.0
// Decompresses frames of Zstandard (RFC 8878). The library accepts windows of up to 128 MiB.
#include <zstd.h>

#include <new>
#include <string>
#include <vector>

#include "dataflow/datasets/shard_stream.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

class ZstdDecompressor final : public Decompressor {
 public:
  explicit ZstdDecompressor(ByteStream& compressed)
      : compressed_(compressed), input_(ZSTD_DStreamInSize()), stream_(ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
  }

  std::size_t produce(std::span<std::byte> to) override {
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    for (;;) {
      const std::size_t before = in_.pos;
      const std::size_t result = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(result) != 0) {
        throw DataError(std::string("the compressed data are damaged: ") +
                        ZSTD_getErrorName(result));
      }
      if (in_.pos > before || out.pos > 0) in_frame_ = result != 0;
      if (out.pos > 0) return out.pos;
      if (in_.pos < in_.size) continue;
      in_ = {input_.data(), compressed_.read(input_), 0};
      if (in_.size > 0) continue;
      if (in_frame_) throw DataError("the compressed file is cut off");
      return 0;
    }
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const noexcept { ZSTD_freeDStream(stream); }
  };

  ByteStream& compressed_;
  std::vector<std::byte> input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool in_frame_ = false;
  const std::unique_ptr<ZSTD_DStream, Free> stream_;
};

}  // namespace

extern constinit const DecompressorEntry zstd_decompressor{
    .name = "zstd",
    .summary = "Zstandard files, such as .tar.zst",
    .make = [](ByteStream& compressed) -> std::unique_ptr<Decompressor> {
      return std::make_unique<ZstdDecompressor>(compressed);
    },
};

}  // namespace penstock::datasets
