// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/run_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds(250);

}  // namespace

int parse_progress_fd(std::string_view number) {
  const std::int64_t file = parse_integer(number, "--progress-fd");
  if (file < 3 || file > 1'000'000 || fcntl(static_cast<int>(file), F_GETFD) < 0) {
    throw ConfigError(
        "--progress-fd is {}; expected the number of an open file, from 3, that this "
        "process was started with",
        number);
  }
  return static_cast<int>(file);
}

std::vector<Flag> watch_flags(WatchOptions& options) {
  constexpr FlagGroup flag{"Output"};
  Flag port =
      flag.count("prometheus_port",
                 "port for http://ADDRESS:PORT/metrics (Prometheus) during the run; default: none",
                 options.prometheus_port, 1, 65535);
  port.fallback = "";
  return {flag("progress_fd", "file descriptor for lines of JSON about the progress; default: none",
               "", [&](const std::string& text) { options.progress_fd = parse_progress_fd(text); }),
          std::move(port),
          flag.text("prometheus_address",
                    "IPv4 address where metrics are served; 0.0.0.0: all of this host",
                    options.prometheus_address)};
}

RunWatch::RunWatch(const WatchOptions& options, const RunConfig& config,
                   const RunMetrics::Gauges& gauges, Clock& clock, RunListener* table)
    : options_(options),
      meter_(config, gauges, clock),
      metrics_(config, gauges),
      line_(stderr, options.terminal) {
  if (table != nullptr) group_.add(*table);
  if (options.progress_fd >= 0) {
    // A slow reader must not block the run, and child processes must not inherit the descriptor.
    const int flags = fcntl(options.progress_fd, F_GETFL);
    fcntl(options.progress_fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(options.progress_fd, F_SETFD, FD_CLOEXEC);
  }
  if (options.prometheus_port != 0) {
    group_.add(metrics_);
    server_.emplace(options.prometheus_address, options.prometheus_port,
                    [this] { return metrics_.page(); });
  } else if (options.prometheus_address != WatchOptions().prometheus_address) {
    throw ConfigError("--prometheus-address serves nothing without --prometheus-port; give a port");
  }
  if (!options.terminal && options.progress_fd < 0) return;
  group_.add(meter_);
  ticker_.emplace(clock, kPeriod, [this] { show(); });
}

void RunWatch::show() {
  const Progress progress = meter_.now();
  if (options_.terminal) line_.pass(progress_text(progress, line_.width(), line_.colour()));
  if (options_.progress_fd < 0) return;
  const std::string line = to_line(progress) + "\n";  // shorter than PIPE_BUF: whole or not at all
  static_cast<void>(!write(options_.progress_fd, line.data(), line.size()));
}

}  // namespace penstock
