// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with compressed bytes: decompress them, into pieces
// of odd sizes. Throws std::logic_error where more comes than there is room for.
#pragma once

#include <zlib.h>
#ifdef PENSTOCK_WITH_ZSTD
#include <zstd.h>
#endif

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/shard_stream.h"

namespace penstock {

extern const DecompressorEntry gzip_decompressor, zlib_decompressor, zstd_decompressor;

inline constexpr const DecompressorEntry* kFuzzedDecompressors[] = {
    &gzip_decompressor,
    &zlib_decompressor,
#ifdef PENSTOCK_WITH_ZSTD
    &zstd_decompressor,
#endif
};

/// The first byte chooses the decompressor, the others are its input. What they decompress to, up
/// to a megabyte; nothing where they are damaged.
inline std::optional<std::vector<std::byte>> try_decompressor(std::span<const std::byte> input) {
  if (input.empty()) return std::nullopt;
  const std::size_t number = std::to_integer<std::size_t>(input[0]);
  // A block of exactly this size, so that a sanitizer sees one byte too many.
  const std::vector<std::byte> compressed(input.begin() + 1, input.end());
  MemoryStream stream(compressed);
  const std::unique_ptr<Decompressor> decompressor =
      kFuzzedDecompressors[number % std::size(kFuzzedDecompressors)]->make(stream);
  constexpr std::size_t kMost = std::size_t{1} << 20, kPiece = 1009;
  std::vector<std::byte> whole;
  try {
    while (whole.size() < kMost) {
      std::vector<std::byte> piece(kPiece);
      const std::size_t count = decompressor->produce(piece);
      if (count > kPiece) throw std::logic_error("more bytes than there is room for");
      if (count == 0) break;
      whole.insert(whole.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    }
  } catch (const DataError&) {
    return std::nullopt;
  }
  return whole;
}

/// What every seed decompresses to.
inline std::vector<std::byte> decompressor_text() {
  std::vector<std::byte> text;
  for (unsigned i = 0; i < 3000; ++i) text.push_back(static_cast<std::byte>(i * i % 251 % 17));
  return text;
}

/// The text by every compressor, and as two members of gzip.
inline std::vector<std::vector<std::byte>> decompressor_corpus() {
  const std::vector<std::byte> text = decompressor_text();
  const auto deflated = [](std::byte number, std::span<const std::byte> bytes, int window) {
    z_stream stream{};
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
      throw std::bad_alloc();
    }
    std::vector<std::byte> to(1 + deflateBound(&stream, bytes.size()), number);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + 1);
    stream.avail_out = static_cast<uInt>(to.size() - 1);
    deflate(&stream, Z_FINISH);
    to.resize(1 + stream.total_out);
    deflateEnd(&stream);
    return to;
  };
  constexpr int kWindowBits = 15, kGzipFrame = 16;
  const auto halves = std::span(text);
  std::vector<std::byte> members =
      deflated(std::byte{0}, halves.first(500), kWindowBits + kGzipFrame);
  const std::vector<std::byte> second =
      deflated(std::byte{0}, halves.subspan(500), kWindowBits + kGzipFrame);
  members.insert(members.end(), second.begin() + 1, second.end());
  std::vector<std::vector<std::byte>> corpus = {
      deflated(std::byte{0}, text, kWindowBits + kGzipFrame),
      deflated(std::byte{1}, text, kWindowBits), members};
#ifdef PENSTOCK_WITH_ZSTD
  std::vector<std::byte> frame(1 + ZSTD_compressBound(text.size()), std::byte{2});
  frame.resize(1 + ZSTD_compress(frame.data() + 1, frame.size() - 1, text.data(), text.size(), 3));
  corpus.push_back(frame);
#endif
  return corpus;
}

}  // namespace penstock
