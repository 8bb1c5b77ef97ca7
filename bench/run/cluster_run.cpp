// SPDX-License-Identifier: Apache-2.0
#include "bench/cluster_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "bench/config_values.h"
#include "bench/environment.h"
#include "bench/exchange/exchange_rules.h"
#include "bench/process_run.h"
#include "bench/run_exchange.h"
#include "bench/training_rules.h"
#include "bench/verbs/flag_group.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "trainer/servers/serve.h"

namespace penstock {
namespace {

constexpr int kTimedOut = 5, kStopped = 130;

/// Updates that have servers which are processes.
constexpr std::string_view kServedUpdates[] = {"parameter-server", "distributed-replicated",
                                               "byteps"};

void set_job(ClusterWish& wish, const std::string& text) {
  if (text == "controller") {
    throw ConfigError(
        "--job-name is controller, which drives workers in tf_cnn_benchmarks' modes without "
        "servers; here those run in one process, or under mpirun with --variable-update horovod");
  }
  std::string word;
  set_word(word, "job_name", text, {"ps", "worker"});
  wish.job = word == "ps" ? ClusterWish::Job::ps : ClusterWish::Job::worker;
}

Cluster cluster_of(const ClusterWish& wish) {
  const Environment environment = read_environment();
  return {
      .ps_hosts = wish.ps_hosts,
      .worker_hosts = wish.worker_hosts,
      .program = fmt::format("penstock-{} revision-{}", environment.version, environment.revision)};
}

}  // namespace

std::vector<Flag> cluster_flags(ClusterWish& wish) {
  const FlagGroup flag{"Parameter servers"};
  std::vector<Flag> flags{
      flag("job_name", "role of this process: ps (parameter server) or worker; default: neither",
           "", [&wish](const std::string& text) { set_job(wish, text); }),
      flag("ps_hosts", "addresses of the parameter servers: HOST:PORT,...", "",
           [&wish](const std::string& text) { wish.ps_hosts = parse_hosts(text, "--ps-hosts"); }),
      flag("worker_hosts", "addresses of the workers: HOST:PORT,...; they only name the workers",
           "",
           [&wish](const std::string& text) {
             wish.worker_hosts = parse_hosts(text, "--worker-hosts");
           }),
      flag("task_index", "index of this process among the hosts of its role, from 0", "0",
           [&wish](const std::string& text) {
             const std::int64_t index = parse_integer(text, "--task-index");
             if (index < 0 || index > INT32_MAX) {
               throw ConfigError(fmt::format("--task-index is {}; expected 0 or more", text));
             }
             wish.task_index = static_cast<std::int32_t>(index);
           }),
      flag("rendezvous_timeout",
           "how long processes of a run may take to find each other, such as 60s", "60s",
           [&wish](const std::string& text) {
             wish.rendezvous = parse_duration(text, "--rendezvous-timeout");
             if (wish.rendezvous <= Nanoseconds::zero()) {
               throw ConfigError("--rendezvous-timeout is 0; expected a time above 0, such as 60s");
             }
           }),
      flag("server_io_threads", "I/O threads of libzmq in each process", "1",
           [&wish](const std::string& text) {
             const std::int64_t threads = parse_integer(text, "--server-io-threads");
             if (threads < 1 || threads > 64) {
               throw ConfigError(fmt::format("--server-io-threads is {}; expected 1 to 64", text));
             }
             wish.io_threads = static_cast<std::int32_t>(threads);
           }),
      flag("curve_secret", kCurveSecretHelp, "",
           [&wish](const std::string& text) { wish.curve.secret = text; }),
      flag("curve_allow", kCurveAllowHelp, "",
           [&wish](const std::string& text) { wish.curve.allow = text; }),
      flag("curve_server_key",
           "public key file of the parameter servers, or one per server: FILE,...; for workers", "",
           [&wish](const std::string& text) { wish.curve.server_key = text; }),
      flag("insecure", "let a parameter server accept other machines without keys, in plain text",
           "false",
           [&wish](const std::string& text) { wish.insecure = parse_flag(text, "--insecure"); })};
  flags.front().aliases = "job";
  flags.back().boolean = true;
  return flags;
}

void check_cluster(const ClusterWish& wish, const RunConfig& config) {
  if (wish.job == ClusterWish::Job::none) {
    if (!wish.curve.secret.empty() || !wish.curve.allow.empty() || !wish.curve.server_key.empty()) {
      throw ConfigError(
          "--curve-secret, --curve-allow and --curve-server-key are of runs with --job-name; give "
          "zmq-consume its keys as zmq-consume:curve_secret=...,curve_allow=...");
    }
    if (wish.ps_hosts.empty() && wish.worker_hosts.empty()) return;
    throw ConfigError(
        "--ps-hosts and --worker-hosts are of runs with --job-name ps or worker; add "
        "that, or leave them out");
  }
  if (wish.ps_hosts.empty() || wish.worker_hosts.empty()) {
    throw ConfigError(
        fmt::format("--job-name is given and --{} is not; pass --ps-hosts and "
                    "--worker-hosts to every process of the run",
                    wish.ps_hosts.empty() ? "ps-hosts" : "worker-hosts"));
  }
  for (const std::string& host : wish.ps_hosts) {
    if (std::find(wish.worker_hosts.begin(), wish.worker_hosts.end(), host) !=
        wish.worker_hosts.end()) {
      throw ConfigError(fmt::format(
          "'{}' is in --ps-hosts and in --worker-hosts; give each task an address of its own",
          host));
    }
    static_cast<void>(numeric_endpoint(host));  // throws for a host that nobody knows
  }
  const bool serves = wish.job == ClusterWish::Job::ps;
  const std::size_t tasks = (serves ? wish.ps_hosts : wish.worker_hosts).size();
  if (static_cast<std::size_t>(wish.task_index) >= tasks) {
    throw ConfigError(fmt::format("--task-index is {}, and --{} has {}; expected 0 to {}",
                                  wish.task_index, serves ? "ps-hosts" : "worker-hosts", tasks,
                                  tasks - 1));
  }
  if (serves) return;
  const std::string update = canonical_name(parse_component(config.variable_update).name);
  if (std::find(std::begin(kServedUpdates), std::end(kServedUpdates), update) ==
      std::end(kServedUpdates)) {
    throw ConfigError(
        fmt::format("--job-name is worker, and --variable-update {} has no servers; use "
                    "parameter_server, distributed_replicated or byteps, or leave --job-name out",
                    config.variable_update));
  }
  if (exchanges_on_gpus(config)) {
    throw ConfigError(
        fmt::format("--device is {}, and workers send gradients from the host's memory only; use "
                    "--device cpu or emulated, or train on GPUs without --job-name, with "
                    "--variable-update replicated or horovod",
                    config.device));
  }
  refuse_unfit(config);
}

int serve_job(const ClusterWish& wish, const RunConfig& config, std::stop_token stop) {
  SteadyClock clock;
  const Cluster cluster = cluster_of(wish);
  const std::string name = cluster.server(wish.task_index);
  const auto say = [&name](const std::string& sentence) {
    fmt::print(stderr, "penstock: {}: {}\n", name, sentence);
  };
  const Served served = serve_parameters(
      {.cluster = cluster,
       .task = wish.task_index,
       .insecure = wish.insecure,
       .curve = wish.curve,
       .io_threads = wish.io_threads,
       .patience = {.rendezvous = wish.rendezvous, .silence = patience_of(config)}},
      clock, say, std::move(stop));
  if (served.refused > 0) say(fmt::format("refused {} tries of peers", served.refused));
  if (served.rejected > 0) say(fmt::format("dropped {} messages", served.rejected));
  if (!served.failure.empty()) say(served.failure);
  if (served.stopped) return kStopped;
  return served.failure.empty() ? 0 : kTimedOut;
}

std::unique_ptr<ServerConnection> join_servers(const ClusterWish& wish, const RunConfig& config,
                                               Clock& clock, std::stop_token stop) {
  if (config.fp16_vars) {
    throw ConfigError(
        "--fp16-vars stores weights in 16 bits, and parameter servers hold them in 32; leave "
        "--fp16-vars out, or the servers");
  }
  return std::make_unique<ServerConnection>(
      ServerConnection::Wish{.cluster = cluster_of(wish),
                             .task = wish.task_index,
                             .optimizer = optimizer_text(config),
                             .rendezvous = wish.rendezvous,
                             .silence = patience_of(config),
                             .io_threads = wish.io_threads,
                             .curve = wish.curve,
                             .stop = std::move(stop)},
      clock);
}

}  // namespace penstock
