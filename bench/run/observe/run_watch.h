// SPDX-License-Identifier: Apache-2.0
// Lets observers follow a run from outside: a terminal, a parent process, a Prometheus server. Each
// is served a few times a second, from threads that are not measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/config/flags.h"
#include "bench/run/observe/metrics_server.h"
#include "bench/run/observe/progress_line.h"
#include "bench/run/observe/progress_meter.h"
#include "bench/run/observe/run_listener.h"
#include "bench/run/observe/run_metrics.h"

namespace penstock {

struct WatchOptions {
  bool terminal = false;              ///< show a line on standard error
  int progress_fd = -1;               ///< for lines of JSON, see progress.h; -1: none
  std::uint16_t prometheus_port = 0;  ///< 0: none
  std::string prometheus_address = "127.0.0.1";
};

/// Throws ConfigError if `number` is not an inherited open file descriptor.
int parse_progress_fd(std::string_view number);

/// Flags that write to `options`.
std::vector<Flag> watch_flags(WatchOptions& options);

class RunWatch {
 public:
  /// `config` is resolved. `gauges` is called from other threads. What it refers to, `clock` and
  /// `table`, which may be null, must outlive the watch. Throws ConfigError.
  RunWatch(const WatchOptions& options, const RunConfig& config, const RunMetrics::Gauges& gauges,
           Clock& clock, RunListener* table);

  /// The listener to pass to the run.
  RunListener& listener() noexcept { return group_; }

 private:
  void show();

  const WatchOptions options_;
  ProgressMeter meter_;
  RunMetrics metrics_;
  ListenerGroup group_;
  LiveLine line_;
  std::optional<MetricsServer> server_;
  std::optional<Ticker> ticker_;  // last member: it uses the others
};

}  // namespace penstock
