// SPDX-License-Identifier: Apache-2.0
// What `penstock serve` says of its batches: on the way, at the end, and of several processes in
// all. It names the slower side: those who take the batches, or those who make them.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// What a producer did, from its beginning to its end.
struct ServeTotals {
  std::int64_t batches = 0, images = 0, bytes = 0;
  double seconds = 0;
  double consumers_s = 0;  ///< of them: nobody took a batch
  double feeder_s = 0;     ///< of them: there was no batch to send

  bool operator==(const ServeTotals&) const = default;
};

/// A line without its end, and back. Throws Error for what is no such line.
std::string to_line(const ServeTotals& totals);
ServeTotals totals_from_line(std::string_view line);

/// Of processes that served at once: sums, and the longest time; waits are means.
ServeTotals sum_of(std::span<const ServeTotals> processes);

/// "sent 22 batches, 176 images ... in 2.1 s; 63 % of it waiting for consumers, 12 % for batches to
/// send: the consumers are the slower side". `paced`: held to a rate.
std::string describe(const ServeTotals& totals, bool paced);

/// While one process serves. Thread-safety: run() beside everything else.
class ServeProgress {
 public:
  /// `name` begins each line: "penstock serve". Time counts from here. What is passed outlives it.
  ServeProgress(std::string name, Probe& probe, Clock& clock);

  /// One line on standard error every few seconds, until stopped.
  void run(const std::stop_token& stop) const;
  ServeTotals totals() const;

 private:
  const std::string name_;
  Counter &batches_, &images_, &bytes_, &consumers_ns_, &feeder_ns_;
  Clock& clock_;
  const Time start_;
};

}  // namespace penstock
