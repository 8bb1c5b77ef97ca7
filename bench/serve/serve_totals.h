// SPDX-License-Identifier: Apache-2.0
// Reports what `penstock serve` did: progress, totals at the end, and the sum of several processes.
// It names the slower side: consumers or producer.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock::serve {

/// What a producer did in total.
struct ServeTotals {
  std::int64_t batches = 0, images = 0, bytes = 0;
  double seconds = 0;
  double consumers_s = 0;  ///< part of seconds: waiting for a consumer to take a batch
  double feeder_s = 0;     ///< part of seconds: waiting for a batch to send

  bool operator==(const ServeTotals&) const = default;
};

/// One line without the line break, and back. Throws Error for other text.
std::string to_line(const ServeTotals& totals);
ServeTotals totals_from_line(std::string_view line);

/// The total of simultaneous processes: sums, the longest time, and the mean waits.
ServeTotals sum_of(std::span<const ServeTotals> processes);

struct ServeWay {
  bool paced = false;        ///< limited to a rate
  bool dropped = false;      ///< batches were encoded, and not sent
  std::string unit = "img";  ///< of the rate, in a second
};

/// "sent 22 batches, 176 images ... in 2.1 s; 63 % of it waiting for consumers, 12 % for batches to
/// send: the consumers are the slower side".
std::string describe(const ServeTotals& totals, const ServeWay& way);

/// Progress of one serving process. Thread-safety: run() may run parallel to everything else.
class ServeProgress {
 public:
  /// `name` begins each line: "penstock serve". `unit`: of the rate, in a second. Time starts here.
  /// Probe and clock must outlive this.
  ServeProgress(std::string name, std::string unit, Probe& probe, Clock& clock);

  /// Prints one line on standard error every few seconds, until stopped.
  void run(const std::stop_token& stop) const;
  ServeTotals totals() const;

 private:
  const std::string name_, unit_;
  Counter &batches_, &images_, &bytes_, &consumers_ns_, &feeder_ns_;
  Clock& clock_;
  const Time start_;
};

}  // namespace penstock::serve
