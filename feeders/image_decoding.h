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
     "part of the image to take, in evaluation its centre; sources of pixels also have auto (their "
     "default) and padN such as pad4 [that of chain]",
     kCropValues},
    {"chain", "", "sets crop, resize and color at once; each can be overridden [torchvision]",
     kChainValues},
    {"resize", "", "method of resizing [that of chain]", kResizeValues},
    {"color", "", "colour distortion, not in evaluation [that of chain]", kColourValues},
    {"flip", "",
     "mirror half of the images at random; default: true, with decode=raw false, with pixels true "
     "if the crop is random"},
    {"upsampling", "", "chroma upsampling: fancy (default) or plain"},
    {"max_pixels", "", "most pixels of an image; larger images are refused; default: 178956970"},
    {"decode", "",
     "what to decode: region (the crop only; default), full (the whole image, then crop) or raw "
     "(before the run, into memory; crop is center or full)"},
    {"shrink", "",
     "decode regions of at least twice the output size at a reduced scale; default: true"},
    {"engine", "",
     "JPEG decoder: auto (default; built-in for baseline images, else libjpeg) or libjpeg"},
};

/// Options of the pool of threads.
inline constexpr OptionSpec kDecodePoolOptions[] = {
    kNormaliseOption,
    {"threads", "all",
     "threads that decode: all of --feeder-threads, or auto (as few as keep the trainer busy, "
     "found during warm-up)"},
    {"cores", "",
     "pin decode threads to cores: auto (over NUMA nodes in turn), or a list such as 0-3+8; "
     "default: not pinned"},
    {"numa", "",
     "pin decode threads to NUMA nodes, such as 0 or 0+1; with one node, the host ring lies there "
     "too"},
    {"extra_us", "0",
     "extra CPU time per image in microseconds, to test the measurement of stages"},
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
