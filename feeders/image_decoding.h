// SPDX-License-Identifier: Apache-2.0
// What feeders share that decode images: the options that say how, and a DecodePool made of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/augmentation.h"
#include "dataflow/decode_pool.h"
#include "dataflow/decoder.h"
#include "dataflow/options.h"
#include "dataflow/placement/cpu_topology.h"
#include "feeders/feeder.h"
#include "feeders/normalise_option.h"

namespace penstock {

/// Options of the decoders, which explain them; empty: their defaults.
inline constexpr OptionSpec kDecoderOptions[] = {
    {"crop", "",
     "which part of an image [the chain's]; evaluation takes a centre; from sources of pixels also "
     "auto (their default) and padN such as pad4",
     kCropValues},
    {"chain", "", "crop, resize and color at once [torchvision]; each can be given besides",
     kChainValues},
    {"resize", "", "how that part is resized [the chain's]", kResizeValues},
    {"color", "", "how colours are distorted, but in evaluation [the chain's]", kColourValues},
    {"flip", "",
     "mirror every other image, by chance (default true; with decode=raw false; with pixels where "
     "the crop is left to chance)"},
    {"upsampling", "", "fancy (default) or plain"},
    {"max_pixels", "", "refuse larger images (default 178956970)"},
    {"decode", "",
     "region (default): what the crop takes; full: whole images, then the crop; raw: pixels that "
     "lie in memory, decoded and cropped before the run (center, or full)"},
    {"shrink", "",
     "decode regions of twice the batch's size and more at a half or less (default true)"},
    {"engine", "", "what decodes JPEG: auto (default; our own where it can), or libjpeg"},
};

/// Options of the pool of threads.
inline constexpr OptionSpec kDecodePoolOptions[] = {
    kNormaliseOption,
    {"threads", "all",
     "of --feeder-threads: all, or auto: as many as it takes until nobody waits for batches, found "
     "out while the run warms up"},
    {"cores", "",
     "keep decode threads on processors: auto, on NUMA nodes in turn, or a list such as 0-3+8"},
    {"numa", "",
     "keep them on those of these NUMA nodes, such as 0 or 0+1; of one alone, slots lie there too"},
    {"extra_us", "0",
     "burn so many microseconds of CPU time for each image in the thread that decodes it: a known "
     "answer for what measures stages"},
};

/// One table of several, in their order.
template <std::size_t... kSizes>
constexpr auto joined_options(const OptionSpec (&... tables)[kSizes]) {
  std::array<OptionSpec, (kSizes + ...)> all{};
  std::size_t count = 0;
  const auto add = [&](std::span<const OptionSpec> table) {
    for (const OptionSpec& spec : table) all[count++] = spec;
  };
  (add(tables), ...);
  return all;
}

/// What a feeder is to its user: its name, and its options, which hold both tables above.
struct DecodingFeeder {
  std::string_view name;
  const FeederContext& context;
};

/// The options that were typed and that the decoder knows. Evaluation takes what stands for the
/// crop there, and neither flips nor distorts.
ComponentText decoder_text(const DecodingFeeder& feeder, const DecoderEntry& decoder, bool augment);

/// Whether decode=raw. Throws ConfigError for words that `decode` does not take.
bool holds_pixels(const DecodingFeeder& feeder);

/// The pool, its threads and where they run. Thread-safety: a Feeder's.
class ImageDecoding {
 public:
  /// Throws ConfigError for places that this machine lacks.
  explicit ImageDecoding(const DecodingFeeder& feeder);

  /// Makes the pool that decodes what `source`, which outlives this object, gives. Once, before
  /// what is below. Throws ConfigError for options that decoders refuse.
  void open(const DecodingFeeder& feeder, Source& source);

  bool is_settled() const { return pool_->is_settled(); }
  void settle() { pool_->settle(); }
  /// DecodePool::run.
  void run(BatchRing& out, std::stop_token stop);

 private:
  void say_places(const FeederContext& context) const;
  void move_slots(const BatchRing& ring) const;

  Probe& probe_;
  const std::vector<Cpu> places_;  // of the pool's threads; empty: wherever the kernel likes
  const std::optional<std::int32_t> slot_node_;
  std::optional<DecodePool> pool_;
};

}  // namespace penstock
