// SPDX-License-Identifier: Apache-2.0
// Runs with parameter servers in separate processes: the flags of tf_cnn_benchmarks that give this
// process its job and task, and the code for either job.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"
#include "bench/run/processes/process_run.h"
#include "dataflow/clock.h"
#include "dataflow/net/curve_setup.h"

namespace penstock {

struct ClusterArguments {
  enum class Job : std::uint8_t { none, ps, worker };
  Job job = Job::none;
  std::vector<std::string> ps_hosts, worker_hosts;
  std::int32_t task_index = 0;
  bool insecure = false;
  net::CurveFiles curve;
  Nanoseconds rendezvous = std::chrono::seconds(60);
  std::int32_t io_threads = 1;
};

std::vector<Flag> cluster_flags(ClusterArguments& arguments);

/// Throws ConfigError if the flags contradict each other or the configuration.
void check_cluster(const ClusterArguments& arguments, const RunConfig& config);

/// Runs this process as a parameter server. Blocks until the run needs no server any more; returns
/// the exit code.
int serve_job(const ClusterArguments& arguments, const RunConfig& config, std::stop_token stop);

/// Connects this process as a worker and calls run_rank. Throws TimeoutError if a server does not
/// answer, and ConfigError if a server refuses.
int run_worker(const ClusterArguments& arguments, const RunConfig& config,
               const std::stop_token& stop, const RankBody& body);

}  // namespace penstock
