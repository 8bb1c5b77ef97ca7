// SPDX-License-Identifier: Apache-2.0
// Records a timeline of the first steps of a window in Chrome's trace-event format, for Perfetto
// and chrome://tracing. It shows each rank's host and device per step, stagers, stages of the
// feeder, ready batches per ring, and every kernel and copy if the backend supports that. Times are
// microseconds of the steady clock.
//
// Traced steps form a separate leg, so recording begins and ends with idle devices and does not
// affect later steps. Measured threads write into preallocated arrays.
//
// Thread-safety: one thread at a time, except for the span log.
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

#include "bench/run/trace/operation_profile.h"
#include "dataflow/batch_ring.h"
#include "dataflow/probe.h"
#include "dataflow/trace_log.h"
#include "trainer/activity.h"
#include "trainer/backend.h"
#include "trainer/metrics.h"

namespace penstock {

class Trace {
 public:
  /// `clock` must outlive the trace.
  Trace(std::size_t steps, const Clock& clock);

  /// Records the fill level of a ring, for the feeders (rank -1) or for a rank. Call before the
  /// run; the ring must outlive the last leg.
  void watch(BatchRing& ring, std::string name, std::int32_t rank);

  /// The log for marks of feeders and stagers.
  SpanLog& spans() noexcept { return spans_; }
  /// Steps that remain to be traced.
  std::size_t steps_left() const noexcept { return steps_left_; }

  /// The operations of the traced steps.
  const OperationProfile& profile() const noexcept { return profile_; }
  /// The model of devices that emulate: their operations take the shares of its arithmetic. Call
  /// before the run.
  void emulate(const Graph& graph, bool trains) { emulated_ = {&graph, trains}; }

  /// Call before a traced leg, with idle devices. If something cannot be recorded, adds a note to
  /// `probe`.
  void begin_leg(DeviceMonitor& devices, Probe& probe);
  /// Call after that leg, with idle devices. `ranks` is indexed by rank.
  void end_leg(DeviceMonitor& devices, std::span<const Leg> ranks);

  /// Call after the run. Throws DataError if writing to `out` fails.
  void write(std::ostream& out) const;

 private:
  struct Event {
    std::string name;
    Time begin{}, end{};
    std::map<std::string, std::int64_t> arguments{};
  };
  /// Chrome's process and thread numbers.
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
  std::vector<WatchedRing> rings_;  // index: ring number in depths_
  Tracks tracks_;                   // of ranks and devices
  OperationProfile profile_;
  std::pair<const Graph*, bool> emulated_{};
};

}  // namespace penstock
