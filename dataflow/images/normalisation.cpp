// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/normalisation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/images/instruction_set.h"
#include "dataflow/values/float16.h"

namespace penstock {
namespace {

/// A multiple of 1, 2, 3 and 4 channels and of the widest vectors, so that the constants repeat.
constexpr std::size_t kPattern = 48;

struct Pattern {
  alignas(64) std::array<float, kPattern> factor, offset;
};

/// Normalises `count` pixels; the first uses the pattern's first constants.
struct Kernel {
  [[gnu::always_inline]] static inline void run(const std::uint8_t* pixels, const Pattern* pattern,
                                                float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + kPattern <= count; i += kPattern) {
#pragma GCC ivdep
      for (std::size_t j = 0; j < kPattern; ++j) {
        to[i + j] = static_cast<float>(pixels[i + j]) * pattern->factor[j] + pattern->offset[j];
      }
    }
    for (std::size_t j = 0; i < count; ++i, ++j) {
      to[i] = static_cast<float>(pixels[i]) * pattern->factor[j] + pattern->offset[j];
    }
  }
};

using Run = void (*)(const std::uint8_t*, const Pattern*, float*, std::size_t);
constexpr Run kRuns[] = {portable<Kernel>, avx2<Kernel>, avx512<Kernel>};

class NormalisingDecoder final : public DecoderOver {
 public:
  using DecoderOver::DecoderOver;

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    const std::ptrdiff_t line = std::ptrdiff_t{row.shape.width} * row.shape.channels;
    PENSTOCK_ASSERT(row.row_bytes == line * static_cast<std::ptrdiff_t>(size_of(row.dtype)));
    bytes_.resize(row.shape.elements());
    decoder_->decode(
        sample, {reinterpret_cast<std::byte*>(bytes_.data()), row.shape, DType::u8, line}, random);
    normalise(bytes_, row.shape.channels, row.dtype, row.data);
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

void normalise(std::span<const std::uint8_t> pixels, std::int32_t channels, DType type,
               std::byte* to) {
  PENSTOCK_ASSERT(channels >= 1 && channels <= 4 && (type == DType::f32 || type == DType::f16));
  static const Run run = kRuns[static_cast<std::size_t>(best_instruction_set())];
  Pattern pattern;
  for (std::size_t i = 0; i < kPattern; ++i) {
    const ChannelScale scale =
        channel_scale(static_cast<std::int32_t>(i % static_cast<std::size_t>(channels)), channels);
    pattern.factor[i] = scale.factor;
    pattern.offset[i] = scale.offset;
  }
  if (type == DType::f32) {
    run(pixels.data(), &pattern, reinterpret_cast<float*>(to), pixels.size());
    return;
  }
  constexpr std::size_t kBlock = 32 * kPattern;  // fits into a first-level cache
  alignas(64) float block[kBlock];
  auto* const halves = reinterpret_cast<values::Fp16*>(to);
  for (std::size_t first = 0; first < pixels.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, pixels.size() - first);
    run(pixels.data() + first, &pattern, block, count);
    values::narrow(block, halves + first, count);
  }
}

std::unique_ptr<Decoder> make_normalising_decoder(std::unique_ptr<Decoder> decoder) {
  return std::make_unique<NormalisingDecoder>(std::move(decoder));
}

// ---- the option of feeders --------------------------------------------------

void normalise_batches(const Options& options, BatchSpec& batches) {
  const std::string& where = options.text("normalise");
  if (where == "device") return;
  if (where != "f32" && where != "f16") {
    throw ConfigError("option 'normalise' is '{}'; expected device, f32 or f16", where);
  }
  batches.pixel = where == "f32" ? DType::f32 : DType::f16;
  batches.normalised = true;
}

void check_normalised(const Options& options, const BatchSpec& batches) {
  BatchSpec expected = batches;
  expected.pixel = DType::u8;
  expected.normalised = false;
  normalise_batches(options, expected);
  if (expected == batches) return;
  throw ConfigError(
      "option 'normalise' is '{}', but the consumer of these batches expects {}-bit pixels; leave "
      "normalise out",
      options.text("normalise"), 8 * size_of(batches.pixel));
}

}  // namespace penstock
