// SPDX-License-Identifier: Apache-2.0
// Workers that turn a Source's samples into rows of leased batches, each with a Decoder of its own.
//
//   source -> (one worker at a time: a batch's next row, a sample) -> read the sample -> decode
//   into the row -> the worker that fills the last row publishes the batch
//
// A worker holds one sample at a time, and batches in flight hold slots of the ring: both bound
// memory and work. Rows are given out in the source's order; a row's pixels depend on (seed, epoch,
// index) of its sample alone. With Order::strict batches are published in the order in which their
// rows were given out, so that runs repeat whatever the number of threads; with samples left out,
// only one thread repeats, since a row whose sample is bad takes the next one that nobody has yet.
//
// Thread-safety: run() is called once; everything else happens inside.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/decoder.h"
#include "dataflow/mark.h"
#include "dataflow/placement/cpu_topology.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"
#include "dataflow/thread_tuner.h"

namespace penstock {

struct DecodePlan {
  std::int32_t threads = 1;     ///< including the one that calls run()
  bool choose_threads = false;  ///< begin with one, and take as many of `threads` as readers need
  std::vector<Cpu> places{};  ///< of the threads, in their order; empty: wherever the kernel likes
  Order order = Order::relaxed;
  std::uint64_t seed = 1;
  Marks marks{};  ///< "wait for a slot", "read" and "decode", the last two for each sample
  std::int64_t bad_samples_allowed = 0;  ///< 0: the first one fails the run; -1: any number
};

class DecodePool {
 public:
  /// Coprime to the usual sizes of batches, so that no place in them is preferred.
  static constexpr std::uint32_t kTimedPeriod = 17;

  /// `make_decoder` is called once for each thread, here. `source`, `clock` and `probe` outlive the
  /// pool. Counters: images_decoded, encoded_bytes, decode_ns (CPU time in decoders, estimated from
  /// the images that are timed), bad_samples, and decode_threads, the workers that have decoded
  /// anything.
  ///
  /// Stages of the "decode threads": "read" and "decode". Each worker times one in kTimedPeriod of
  /// its images. It waits for input where another one chooses a sample, or takes its row, and where
  /// the source has nothing to say yet; it waits
  /// for room where it has no slot, or where the one that takes a row has
  /// none. Both are waits of "decode".
  DecodePool(const DecodePlan& plan, Source& source,
             const std::function<std::unique_ptr<Decoder>()>& make_decoder, Clock& clock,
             Probe& probe);
  ~DecodePool();

  /// Fills batches until the data end, the ring closes or a stop is requested; then returns, with
  /// every lease published or given back. The last batch of finite data may be partly filled:
  /// `valid` says how far, the rest is zeros. Throws DataError when bad samples exceed what is
  /// allowed, or when a whole epoch has no good one; what the source or a decoder throws besides
  /// goes through.
  void run(BatchRing& out, std::stop_token stop);

  /// Is it known how many threads readers need? True where nobody asked. From any thread.
  bool is_settled() const { return !tuner_ || tuner_->is_settled(); }
  /// No more threads than by now, of which stages then tell. While nobody reads those.
  void settle();

 private:
  class Crew;
  const DecodePlan plan_;
  Source& source_;
  Clock& clock_;
  Probe& probe_;
  StageCounters &read_stage_, &decode_stage_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::optional<ThreadTuner> tuner_;
};

}  // namespace penstock
