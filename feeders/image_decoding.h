// SPDX-License-Identifier: Apache-2.0
// Decoding, shared by the feeders that decode images: its options, and the DecodePool built from
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "dataflow/decoder.h"
#include "dataflow/images/decode_pool.h"
#include "dataflow/images/jpeg_options.h"
#include "dataflow/images/normalisation.h"
#include "dataflow/machine/thread_places.h"
#include "dataflow/options.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/sample_coverage.h"

namespace penstock {

/// Options of the thread pool.
inline constexpr OptionSpec kDecodePoolOptions[] = {
    kNormaliseOption,
    {"threads", "all",
     "threads that decode: all of --feeder-threads, or auto (as few as keep the trainer busy, "
     "found during warm-up)"},
    {"cores", "",
     "pin decode threads to cores: auto (over NUMA nodes in turn), or a list such as 0-3+8; "
     "default: not pinned"},
    {"numa", "",
     "pin decode threads to NUMA nodes, such as 0 or 0+1; with one node, the host ring is there "
     "too"},
    {"extra_us", "0",
     "extra CPU time per image in microseconds, to test the measurement of stages"},
};

/// Joins several option tables into one, in their order.
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

/// The name of a feeder and its context, whose options contain
/// kJpegOptions and kDecodePoolOptions.
struct DecodingFeeder {
  std::string_view name;
  const FeederContext& context;
};

/// Returns the given options that the decoder knows. In evaluation the crop becomes its evaluation
/// counterpart, and the decoder neither flips nor distorts.
ComponentText decoder_text(const DecodingFeeder& feeder, const DecoderEntry& decoder, bool augment);

/// Returns whether decode=raw. Throws ConfigError if the value of `decode` is unknown.
bool holds_pixels(const DecodingFeeder& feeder);

/// The decode pool, its threads and their cores. Thread-safety: as for a Feeder.
class ImageDecoding {
 public:
  /// Throws ConfigError if this machine lacks a requested core or NUMA node.
  explicit ImageDecoding(const DecodingFeeder& feeder);

  /// Creates the pool that decodes the samples of `source`, which must outlive this object, as
  /// `coverage` must; null: which samples were seen is not recorded. Call once, before the
  /// functions below. Throws ConfigError if a decoder refuses an option.
  void open(const DecodingFeeder& feeder, Source& source, SampleCoverage* coverage = nullptr);

  bool is_settled() const { return pool_->is_settled(); }
  void settle() { pool_->settle(); }
  /// Runs DecodePool::run().
  void run(BatchRing& out, std::stop_token stop);

 private:
  void note_places(const FeederContext& context) const;
  void move_slots(const BatchRing& ring) const;

  Probe& probe_;
  const std::vector<Cpu> places_;  // of the pool's threads; empty: not pinned
  const std::optional<std::int32_t> slot_node_;
  std::optional<DecodePool> pool_;
};

}  // namespace penstock
