// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/run_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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
        fmt::format("--progress-fd is {}; expected the number of an open file, from 3, that this "
                    "process was started with",
                    number));
  }
  return static_cast<int>(file);
}

std::uint16_t parse_port(std::string_view number, std::string_view flag) {
  const std::int64_t port = parse_integer(number, flag);
  if (port < 1 || port > 65535) {
    throw ConfigError(fmt::format("{} is {}; expected a port from 1 to 65535", flag, number));
  }
  return static_cast<std::uint16_t>(port);
}

RunWatch::RunWatch(const WatchArguments& arguments, const RunConfig& config,
                   const RunMetrics::Gauges& gauges, Clock& clock, RunListener* table)
    : wish_(arguments),
      meter_(config, gauges, clock),
      metrics_(config, gauges),
      line_(stderr, arguments.terminal) {
  if (table != nullptr) group_.add(*table);
  if (arguments.progress_fd >= 0) {
    // A slow reader must not block the run, and child processes must not inherit the descriptor.
    const int flags = fcntl(arguments.progress_fd, F_GETFL);
    fcntl(arguments.progress_fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(arguments.progress_fd, F_SETFD, FD_CLOEXEC);
  }
  if (arguments.prometheus_port != 0) {
    group_.add(metrics_);
    server_.emplace(arguments.prometheus_port, [this] { return metrics_.page(); });
  }
  if (!arguments.terminal && arguments.progress_fd < 0) return;
  group_.add(meter_);
  ticker_.emplace(clock, kPeriod, [this] { show(); });
}

void RunWatch::show() {
  const Progress progress = meter_.now();
  if (wish_.terminal) line_.pass(progress_text(progress, line_.width(), line_.colour()));
  if (wish_.progress_fd < 0) return;
  const std::string line = to_line(progress) + "\n";  // shorter than PIPE_BUF: whole or not at all
  static_cast<void>(!write(wish_.progress_fd, line.data(), line.size()));
}

}  // namespace penstock
