// SPDX-License-Identifier: Apache-2.0
// Whoever watches a run from outside while it goes on: a terminal, a parent process, a Prometheus
// server. Each looks a few times a second, from threads that are not measured.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/live_line.h"
#include "bench/metrics_server.h"
#include "bench/progress_meter.h"
#include "bench/run_metrics.h"
#include "bench/runner.h"

namespace penstock {

struct WatchWish {
  bool terminal = false;              ///< a line on standard error
  int progress_fd = -1;               ///< where lines of JSON go, see progress.h; -1: nowhere
  std::uint16_t prometheus_port = 0;  ///< 0: none
};

/// Throws ConfigError where `number` is no open file that this process was given.
int parse_progress_fd(std::string_view number);
std::uint16_t parse_port(std::string_view number, std::string_view flag);

class RunWatch {
 public:
  /// `runner`, `clock` and `table`, which may be null, outlive the watch. Throws ConfigError.
  RunWatch(const WatchWish& wish, const Runner& runner, Clock& clock, RunListener* table);

  /// What the run has to tell.
  RunListener& listener() noexcept { return group_; }

 private:
  void show();

  const WatchWish wish_;
  ProgressMeter meter_;
  RunMetrics metrics_;
  ListenerGroup group_;
  LiveLine line_;
  std::optional<MetricsServer> server_;
  std::optional<Ticker> ticker_;  // last: it uses the others
};

}  // namespace penstock
