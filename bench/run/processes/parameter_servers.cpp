// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/parameter_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench/config/config_values.h"
#include "bench/config/exchange_rules.h"
#include "bench/config/training_rules.h"
#include "bench/record/environment.h"
#include "bench/record/exit_code.h"
#include "bench/run/processes/run_exchange.h"
#include "dataflow/error.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/server.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

constexpr int kTimedOut = 5;

void set_job(ClusterArguments& arguments, const std::string& text) {
  if (text == "controller") {
    throw ConfigError(
        "--job-name is controller, which drives workers in tf_cnn_benchmarks' modes without "
        "servers; here those run in one process, or under mpirun with --variable-update horovod");
  }
  std::string word;
  set_word(word, "job_name", text, {"ps", "worker"});
  arguments.job = word == "ps" ? ClusterArguments::Job::ps : ClusterArguments::Job::worker;
}

cluster::Cluster cluster_of(const ClusterArguments& arguments) {
  const Environment environment = read_environment();
  return {
      .ps_hosts = arguments.ps_hosts,
      .worker_hosts = arguments.worker_hosts,
      .program = fmt::format("penstock-{} revision-{}", environment.version, environment.revision)};
}

}  // namespace

std::vector<Flag> cluster_flags(ClusterArguments& arguments) {
  const FlagGroup flag{"Parameter servers"};
  return {
      flag(
          "job_name", "role of this process: ps (parameter server) or worker; default: neither", "",
          [&arguments](const std::string& text) { set_job(arguments, text); }, "job"),
      flag("ps_hosts", "addresses of the parameter servers: HOST:PORT,...", "",
           [&arguments](const std::string& text) {
             arguments.ps_hosts = cluster::parse_hosts(text, "--ps-hosts");
           }),
      flag("worker_hosts", "addresses of the workers: HOST:PORT,...; they only name the workers",
           "",
           [&arguments](const std::string& text) {
             arguments.worker_hosts = cluster::parse_hosts(text, "--worker-hosts");
           }),
      flag.count("task_index", "index of this process among the hosts of its role, from 0",
                 arguments.task_index, 0, INT32_MAX),
      flag("rendezvous_timeout",
           "how long processes of a run may take to find each other, such as 60s", "60s",
           [&arguments](const std::string& text) {
             arguments.rendezvous = parse_duration(text, "--rendezvous-timeout");
             if (arguments.rendezvous <= Nanoseconds::zero()) {
               throw ConfigError("--rendezvous-timeout is 0; expected a time above 0, such as 60s");
             }
           }),
      flag.count("server_io_threads", "I/O threads of libzmq in each process", arguments.io_threads,
                 1, 64),
      flag.text("curve_secret", net::kCurveSecretHelp, arguments.curve.secret),
      flag.text("curve_allow", net::kCurveAllowHelp, arguments.curve.allow),
      flag.text("curve_server_key",
                "public key file of the parameter servers, or one per server: FILE,...; for "
                "workers",
                arguments.curve.server_key),
      flag.boolean("insecure",
                   "let a parameter server accept other machines without keys, in plain text",
                   arguments.insecure)};
}

void check_cluster(const ClusterArguments& arguments, const RunConfig& config) {
  if (arguments.job == ClusterArguments::Job::none) {
    if (!arguments.curve.secret.empty() || !arguments.curve.allow.empty() ||
        !arguments.curve.server_key.empty()) {
      throw ConfigError(
          "--curve-secret, --curve-allow and --curve-server-key are of runs with --job-name; give "
          "zmq-consume its keys as zmq-consume:curve_secret=...,curve_allow=...");
    }
    if (arguments.ps_hosts.empty() && arguments.worker_hosts.empty()) return;
    throw ConfigError(
        "--ps-hosts and --worker-hosts are of runs with --job-name ps or worker; add "
        "that, or leave them out");
  }
  if (arguments.ps_hosts.empty() || arguments.worker_hosts.empty()) {
    throw ConfigError(
        "--job-name is given and --{} is not; pass --ps-hosts and "
        "--worker-hosts to every process of the run",
        arguments.ps_hosts.empty() ? "ps-hosts" : "worker-hosts");
  }
  for (const std::string& host : arguments.ps_hosts) {
    if (std::ranges::find(arguments.worker_hosts, host) != arguments.worker_hosts.end()) {
      throw ConfigError(
          "'{}' is in --ps-hosts and in --worker-hosts; give each task a different address", host);
    }
    static_cast<void>(cluster::numeric_endpoint(host));  // throws for an unknown host
  }
  const bool serves = arguments.job == ClusterArguments::Job::ps;
  const std::size_t tasks = (serves ? arguments.ps_hosts : arguments.worker_hosts).size();
  if (static_cast<std::size_t>(arguments.task_index) >= tasks) {
    throw ConfigError("--task-index is {}, and --{} has {}; expected 0 to {}", arguments.task_index,
                      serves ? "ps-hosts" : "worker-hosts", tasks, tasks - 1);
  }
  // A server has its workers' flags. If these are refused, no worker will come.
  const UpdateEntry* const update = entry_of(update_table(), config.variable_update);
  if (update == nullptr || update->make_served == nullptr) {
    throw ConfigError(
        "--job-name is {}, and --variable-update {} has no servers; use "
        "parameter_server, distributed_replicated or byteps, or leave --job-name out",
        serves ? "ps" : "worker", config.variable_update);
  }
  if (config.fp16_vars) {
    throw ConfigError(
        "--fp16-vars stores weights in 16 bits, but parameter servers hold them in 32; leave "
        "--fp16-vars out, or run without servers");
  }
  if (exchanges_on_gpus(config) && config.precision == to_string(Precision::f16)) {
    throw ConfigError(
        "--precision is fp16, and parameter servers apply gradients that overflowed, too; use "
        "bf16, tf32 or fp32, or leave --job-name out");
  }
  refuse_unfit(config);
}

int serve_job(const ClusterArguments& arguments, const RunConfig& config, std::stop_token stop) {
  SteadyClock clock;
  const cluster::Cluster cluster = cluster_of(arguments);
  const std::string name = cluster.server(arguments.task_index);
  const auto say = [&name](const std::string& sentence) {
    fmt::print(stderr, "penstock: {}: {}\n", name, sentence);
  };
  const cluster::Served served = cluster::serve_parameters(
      {.cluster = cluster,
       .task = arguments.task_index,
       .insecure = arguments.insecure,
       .curve = arguments.curve,
       .io_threads = arguments.io_threads,
       .patience = {.rendezvous = arguments.rendezvous, .silence = patience_of(config)}},
      clock, say, std::move(stop));
  if (served.refused > 0) say(fmt::format("refused {} connections", served.refused));
  if (served.rejected > 0) say(fmt::format("dropped {} messages", served.rejected));
  if (!served.failure.empty()) say(served.failure);
  if (served.stopped) return exit_code_of_stop();
  return served.failure.empty() ? 0 : kTimedOut;
}

int run_worker(const ClusterArguments& arguments, const RunConfig& config,
               const std::stop_token& stop, const RankBody& body) {
  SteadyClock clock;
  cluster::ServerConnection servers({.cluster = cluster_of(arguments),
                                     .task = arguments.task_index,
                                     .optimizer = optimizer_text(config),
                                     .rendezvous = arguments.rendezvous,
                                     .silence = patience_of(config),
                                     .io_threads = arguments.io_threads,
                                     .curve = arguments.curve,
                                     .stop = stop},
                                    clock);
  const std::unique_ptr<cluster::Processes> processes = cluster::make_worker_processes(servers);
  return run_rank({.processes = processes.get(), .servers = &servers}, config, stop, body);
}

}  // namespace penstock
