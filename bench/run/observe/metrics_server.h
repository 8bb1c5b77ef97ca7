// SPDX-License-Identifier: Apache-2.0
// Shows a run to a Prometheus server: the metrics in Prometheus' text format (version 0.0.4), and
// the server that answers with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/run/observe/run_listener.h"
#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// Thread-safety: `page` from any thread.
class RunMetrics final : public RunListener {
 public:
  using Gauges = std::function<std::vector<QueueGauge>()>;

  /// `config` is resolved. `page` calls `gauges`.
  RunMetrics(const RunConfig& config, Gauges gauges);

  void window_begins() override;
  void step(const StepReport& step) override;

  /// The metrics: penstock_images_total and the histogram penstock_step_seconds cover measured
  /// steps. penstock_queue_depth and penstock_queue_slots are in batches.
  /// penstock_stall_seconds_total and penstock_backpressure_seconds_total are the times that
  /// threads waited for a batch and for a free slot. penstock_input_wait_share is the share of the
  /// window in which the trainer waited for a batch. All metrics have the labels feeder and model;
  /// metrics of rings also have queue.
  std::string page() const;

 private:
  /// Upper bounds in seconds. One more bucket holds larger values.
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,  0.5,    1.0,   2.5,  5.0,   10.0};

  const std::int64_t images_;  // per step
  const std::string labels_;
  const Gauges gauges_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  std::int64_t steps_ = 0;
  double seconds_ = 0;
  double window_s_ = 0, wait_before_s_ = 0;  // of the window, and waits until it began
};

/// Serves GET /metrics on the loopback address. It accepts at most twenty new clients per second.
/// Each client gets one second and a short request, so slow or idle clients delay neither each
/// other nor the measurement.
///
/// No library: Debian's prometheus-cpp would bring a web server with a thread pool into the
/// measured process, but only one page of text is needed.
class MetricsServer {
 public:
  /// Listens on 127.0.0.1; port 0: any free port. `page` builds the answer on the server's thread.
  /// Throws ConfigError if the port is not available.
  MetricsServer(std::uint16_t port, std::function<std::string()> page);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  std::uint16_t port() const noexcept { return port_; }

  static constexpr std::size_t kMaxRequest = 4096;

 private:
  void serve(const std::stop_token& stop);
  struct Client {
    FileDescriptor socket;
    Time deadline{};
    std::string request{}, response{};  ///< `sent` bytes of the response are sent
    std::size_t sent = 0;
    bool done = false;
  };
  void advance(Client& client) const;
  std::string response_to(std::string_view request) const;

  const std::function<std::string()> page_;
  FileDescriptor socket_;
  EventFd wake_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

}  // namespace penstock
