// SPDX-License-Identifier: Apache-2.0
// Worker threads that turn a Source's samples into rows of leased batches. Each worker has its own
// Decoder.
//
//   source -> (one worker at a time: a batch's next row, a sample) -> read the sample -> decode
//   into the row -> the worker that fills the last row publishes the batch
//
// A worker holds one sample at a time, and batches in flight hold slots of the ring; both bound
// memory and work. Rows are given out in the source's order. A row's pixels depend only on (seed,
// epoch, index) of its sample. With Order::strict, batches are published in the order in which
// their rows were given out, so a run is reproducible with any number of threads. If samples are
// left out, only a run with one thread is reproducible: a row whose sample is bad takes the next
// sample that no worker has taken.
//
// Thread-safety: call run() once; everything else happens inside.
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
#include "dataflow/images/thread_tuner.h"
#include "dataflow/machine/thread_places.h"
#include "dataflow/mark.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"

namespace penstock {

struct DecodePlan {
  std::int32_t threads = 1;     ///< including the one that calls run()
  bool choose_threads = false;  ///< start with one; use as many of `threads` as readers need
  std::vector<Cpu> places{};    ///< CPUs of the threads, in their order; empty: the kernel chooses
  Order order = Order::relaxed;
  std::uint64_t seed = 1;
  Marks marks{};                         ///< "wait for a slot"; per sample: "read" and "decode"
  std::int64_t bad_samples_allowed = 0;  ///< 0: the first one fails the run; -1: no limit
};

class DecodePool {
 public:
  /// Coprime to the usual batch sizes, so that every position in a batch is timed equally often.
  static constexpr std::uint32_t kTimedPeriod = 17;

  /// The constructor calls `make_decoder` once for each thread. `source`, `clock` and `probe` must
  /// outlive the pool. Counters: images_decoded, encoded_bytes, decode_ns (CPU time in decoders,
  /// estimated from the timed images), images_by_another_engine if there are any (see
  /// Decoder::take_substituted), bad_samples, and decode_threads, the number of workers that
  /// have decoded anything.
  ///
  /// Stages of the "decode threads": "read" and "decode". Each worker times one in kTimedPeriod of
  /// its images. A worker waits for input if another worker chooses a sample or takes its row, or
  /// if the source has no result yet. It waits for room if it has no slot, or if the worker that
  /// takes a row has none. Both waits count for "decode".
  DecodePool(const DecodePlan& plan, Source& source,
             const std::function<std::unique_ptr<Decoder>()>& make_decoder, Clock& clock,
             Probe& probe);
  ~DecodePool();

  /// Fills batches until the data end, the ring closes or a stop is requested. Then it returns,
  /// with every lease published or given back. The last batch of finite data may be partly filled:
  /// `valid` is the number of filled rows, and the rest is zeros. Throws DataError if more samples
  /// are bad than allowed, or if a whole epoch has no good sample. Passes on all other errors of
  /// the source or a decoder.
  void run(BatchRing& out, std::stop_token stop);

  /// Is the number of threads that readers need known? Always true if the number is fixed. Any
  /// thread may call it.
  bool is_settled() const { return !tuner_ || tuner_->is_settled(); }
  /// Keeps the current number of threads; the stages then report it. Do not call it while another
  /// thread reads the stages.
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
