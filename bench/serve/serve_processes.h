// SPDX-License-Identifier: Apache-2.0
// Reports what `penstock serve` did: progress, totals at the end, and the sum of several processes.
// It names the slower side: consumers or producer.
//
// `penstock serve --processes N`: starts N producer processes, each with a share of the data, which
// end together.
//
// Selects the data source of `penstock serve --encoded`, which sends image files without decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

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
  bool paced = false;    ///< limited to a rate
  bool dropped = false;  ///< batches were encoded, and not sent
};

/// "sent 22 batches, 176 images ... in 2.1 s; 63 % of it waiting for consumers, 12 % for batches to
/// send: the consumers are the slower side".
std::string describe(const ServeTotals& totals, ServeWay way);

/// Progress of one serving process. Thread-safety: run() may run parallel to everything else.
class ServeProgress {
 public:
  /// `name` begins each line: "penstock serve". Time starts here. Probe and clock must outlive
  /// this.
  ServeProgress(std::string name, Probe& probe, Clock& clock);

  /// Prints one line on standard error every few seconds, until stopped.
  void run(const std::stop_token& stop) const;
  ServeTotals totals() const;

 private:
  const std::string name_;
  Counter &batches_, &images_, &bytes_, &consumers_ns_, &feeder_ns_;
  Clock& clock_;
  const Time start_;
};

/// Identifies this producer in a group of producers.
struct ServeGroup {
  std::int32_t processes = 1;        ///< number of processes to start; 1: this process serves
  std::int32_t rank = 0, ranks = 1;  ///< its share of the data
  int report_fd = -1;                ///< file descriptor for a line with the totals at the end

  /// "penstock serve", "penstock serve 1/4".
  std::string name() const;
  /// Reports to the process that started this one. Does nothing without report_fd.
  void report(const ServeTotals& totals) const;
};

/// Flags that write to `group`.
std::vector<Flag> serve_group_flags(ServeGroup& group);

/// The work that the processes share.
struct ServeShare {
  std::int64_t batches = 0;         ///< of all processes; 0: until stopped
  double img_per_s = 0;             ///< of all processes; 0: as fast as consumers take them
  std::int32_t feeder_threads = 0;  ///< per process; 0: each process decides
  bool bind = false;
  bool dropped = false;  ///< no process has a socket
};

/// Starts the processes with the flags of `invocation` and their shares, and waits until all have
/// ended. If one fails or a stop is requested, it ends the others. Prints their totals on standard
/// error. Returns the exit code of the process that failed. Throws ConfigError for options that
/// several processes cannot share.
int serve_processes(const Invocation& invocation, const ServeGroup& group, const ServeShare& share);

/// Returns the source that `feeder`, with the options in `context`, would decode. Throws
/// ConfigError, with what to use instead, for feeders and sources of pixels, and for decoding
/// options.
std::unique_ptr<Source> make_served_source(const FeederEntry& feeder, const FeederContext& context);

}  // namespace penstock::serve
