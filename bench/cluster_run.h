// SPDX-License-Identifier: Apache-2.0
// Runs whose parameter servers are processes of their own: the flags that say which task of which
// job this process is, as tf_cnn_benchmarks has them, and what it does then.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/run_config.h"
#include "dataflow/clock.h"
#include "dataflow/curve_setup.h"
#include "trainer/servers/connection.h"

namespace penstock {

struct ClusterWish {
  enum class Job : std::uint8_t { none, ps, worker };
  Job job = Job::none;
  std::vector<std::string> ps_hosts, worker_hosts;
  std::int32_t task_index = 0;
  bool insecure = false;
  CurveFiles curve;
  Nanoseconds rendezvous = std::chrono::seconds(60);
  std::int32_t io_threads = 1;
};

std::vector<Flag> cluster_flags(ClusterWish& wish);

/// Throws ConfigError where the flags contradict each other, or the run.
void check_cluster(const ClusterWish& wish, const RunConfig& config);

/// This process is a parameter server: blocks until nobody needs it, and returns the exit code.
int serve_job(const ClusterWish& wish, const RunConfig& config, std::stop_token stop);

/// This process is a worker. Throws TimeoutError where a server does not answer, ConfigError where
/// one refuses.
std::unique_ptr<ServerConnection> join_servers(const ClusterWish& wish, const RunConfig& config,
                                               Clock& clock, std::stop_token stop);

}  // namespace penstock
