// SPDX-License-Identifier: Apache-2.0
// A timeline of the first steps of a window, in Chrome's trace-event format, which Perfetto and
// chrome://tracing show: what each rank's host and device did in each step, stagers, stages of the
// feeder, how many batches lay ready in each ring, and, where the backend can say, every kernel and
// copy. Times are microseconds of the steady clock.
//
// Traced steps are a leg of their own, so that watching begins and ends with the devices idle, and
// the steps behind them run as ever. Measured threads write into arrays that are there before.
//
// Thread-safety: one thread at a time, but for the span log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/depth_log.h"
#include "dataflow/probe.h"
#include "dataflow/span_log.h"
#include "trainer/activity.h"
#include "trainer/backend.h"
#include "trainer/metrics.h"

namespace penstock {

class Trace {
 public:
  /// `clock` outlives the trace.
  Trace(std::size_t steps, const Clock& clock);

  /// Shows how full a ring is, on the feeders' side (rank -1) or on a rank's. Before anything runs;
  /// the ring outlives the last leg.
  void watch(BatchRing& ring, std::string name, std::int32_t rank);

  /// Where marks of feeders and stagers go.
  SpanLog& spans() noexcept { return spans_; }
  /// Steps that are still to be traced.
  std::size_t steps_left() const noexcept { return steps_left_; }

  /// Before the leg whose steps are to be traced, with the devices idle. What cannot be watched is
  /// a note of `probe`.
  void begin_leg(Backend& backend, Probe& probe);
  /// Behind it, the same. `ranks` by their number.
  void end_leg(Backend& backend, std::span<const Leg> ranks);

  /// Once the run has ended. Throws DataError when `out` does not take it.
  void write(std::ostream& out) const;

 private:
  struct Event {
    std::string name;
    Time begin{}, end{};
    std::map<std::string, std::int64_t> arguments{};
  };
  /// Chrome's process and thread.
  using Place = std::pair<std::int32_t, std::int32_t>;
  using Tracks = std::map<Place, std::vector<Event>>;

  void add_steps(std::int32_t rank, const Leg& leg);
  void add_spans(Tracks& tracks) const;
  std::map<std::int32_t, std::string> feeding_threads(const Tracks& tracks) const;
  std::vector<nlohmann::ordered_json> counter_events() const;

  struct WatchedRing {
    BatchRing* ring = nullptr;
    std::string name;
    std::int32_t rank = -1;
  };

  const std::size_t steps_;
  std::size_t steps_left_;
  SpanLog spans_;
  DepthLog depths_;
  std::vector<WatchedRing> rings_;  // by their number in that log
  Tracks tracks_;                   // of ranks and devices
};

}  // namespace penstock
