// SPDX-License-Identifier: Apache-2.0
// Compressed shards, decompressed into pieces of an odd size, a megabyte at most. The input's first
// byte chooses the decompressor.
#include <iterator>
#include <memory>

#include "dataflow/datasets/shard_stream.h"
#include "tests/fuzz/target.h"

namespace penstock::datasets {
extern const DecompressorEntry gzip_decompressor, zlib_decompressor, zstd_decompressor;
}  // namespace penstock::datasets

namespace penstock::fuzz {

std::size_t decompressor(std::span<const std::byte> input) {
  static constexpr const datasets::DecompressorEntry* kDecompressors[] = {
      &datasets::gzip_decompressor,
      &datasets::zlib_decompressor,
#ifdef PENSTOCK_WITH_ZSTD
      &datasets::zstd_decompressor,
#endif
  };
  constexpr std::size_t kMost = std::size_t{1} << 20, kPiece = 1009;
  if (input.empty()) return 0;
  const std::size_t number = std::to_integer<std::size_t>(input[0]);
  datasets::MemoryStream stream(input.subspan(1));
  const std::unique_ptr<datasets::Decompressor> made =
      kDecompressors[number % std::size(kDecompressors)]->make(stream);
  std::size_t whole = 0;
  while (whole < kMost) {
    Bytes piece(kPiece);
    const std::size_t count = made->produce(piece);
    ensure(count <= kPiece, "more bytes than there is room for");
    if (count == 0) break;
    whole += count;
  }
  return whole;
}

}  // namespace penstock::fuzz
