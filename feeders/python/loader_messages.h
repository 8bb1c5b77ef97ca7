// SPDX-License-Identifier: Apache-2.0
// The packets that the child process of a Python loader sends (README.md, "Messages"). Each number
// is checked before it is used. Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/clock.h"

namespace penstock::python {

/// What the loader's batches are, from the first one.
struct LoaderBatches {
  std::int32_t images = 0;
  ImageShape image{};
  DType pixel = DType::u8;
  bool planar = false;  ///< [N,C,H,W]
  bool has_labels = false;
  /// Above 0: the batches are no images, and a slot should have that many bytes.
  std::int64_t opaque_bytes = 0;
  std::string outline;  ///< of such a batch: "dict of input_ids int64[16,2048]"
  /// Worker processes of a DataLoader whose times are known; 0: it loads in its own process. Empty:
  /// no times are known.
  std::optional<std::int32_t> workers;
  /// The times from workers to the loader's process are known; that process pins batches.
  bool times_queue = false, pins = false;
  std::int64_t steps_per_epoch = 0;        ///< 0: not known
  std::string python;                      ///< the interpreter's version
  Nanoseconds first_batch{};               ///< from the start of the interpreter to the first batch
  std::map<std::string, double> settings;  ///< of a DataLoader: num_workers, prefetch_factor, ...
  std::vector<std::string> notes;          ///< what is remarkable about the loader's settings
};

/// A batch in a slot of the shared memory.
struct LoaderBatch {
  std::uint32_t slot = 0;
  std::int32_t images = 0;  ///< at most those of the first one, if they are images
  bool begins_epoch = false;
  std::int64_t other_bytes = 0;  ///< of arrays that are neither pixels nor labels; or of all
  Nanoseconds getting{};         ///< time in the loader's `next`
  Nanoseconds getting_cpu{};     ///< of it, the calling thread computed, or waited for a processor
  Nanoseconds converting{};      ///< checks, and the copy into the slot
  Nanoseconds waiting{};         ///< for a free slot
  // Since the batch before, of all workers and of the batches that came from them, if known:
  Nanoseconds loading{};         ///< samples
  Nanoseconds loading_cpu{};     ///< of it, processor time of all threads
  Nanoseconds loading_core{};    ///< of it, waiting for a processor
  std::int64_t loading_bytes{};  ///< that storage had to read for it
  Nanoseconds collating{};       ///< batches of samples
  Nanoseconds queued{};          ///< from the worker to the loader's process
  Nanoseconds pinning{};         ///< in that process
};

/// Where the time for samples went since the start.
using CodeTimes = std::map<std::string, Nanoseconds>;
struct LoadProfile {
  CodeTimes code;             ///< by the name of the code
  CodeTimes states;           ///< by what the workers did: "computing", or what they waited for
  CodeTimes slowest_samples;  ///< by index; empty: not known
  Nanoseconds median_sample{}, mean_sample{};  ///< without waits for a processor; 0: not known
};

/// What is remarkable about the loader's batches so far: numbers of at least 0, by the names that
/// README.md lists.
using LoaderTraits = std::map<std::string, double>;

// All throw DataError, ConfigError if the loader cannot be used, and what the packet says if it is
// an error of the loader: DataError with a traceback, else ConfigError.

/// The first packet: the number of the interpreter's process.
std::int32_t parse_start(std::string_view packet);
/// The second packet.
LoaderBatches parse_batches(std::string_view packet);
/// The third packet: bytes from one slot of the shared memory to the next, at least `slot_bytes`.
std::size_t parse_memory(std::string_view packet, std::size_t slot_bytes);
/// A later packet that has no batch; empty: it has one, or an error. Names have no control
/// characters.
std::optional<LoadProfile> parse_profile(std::string_view packet);
/// As parse_profile.
std::optional<LoaderTraits> parse_traits(std::string_view packet);
/// Every other packet. The batch is in slot `asked`.
LoaderBatch parse_batch(std::string_view packet, const LoaderBatches& batches,
                        std::optional<std::uint32_t> asked);

}  // namespace penstock::python
