// SPDX-License-Identifier: Apache-2.0
#include "bench/run/prepared_run.h"

#include <utility>

#include "bench/cli.h"
#include "bench/config/training_rules.h"
#include "bench/dataset/default_dataset.h"
#include "bench/record/saved_steps.h"
#include "bench/run/observe/step_records.h"
#include "bench/run/trace/graph_file.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

/// A run that starts its producer may take as many batches as a sustained rate needs, unless the
/// number of steps is fixed.
bool may_take_more(const RunConfig& config, const FeederEntry& feeder) {
  const bool counts_steps = config.eval || config.num_epochs > 0 || !config.train_dir.empty() ||
                            evaluates_while_training(config);
  return !counts_steps && feeder.outside_reserve != nullptr &&
         options_of(config.fake_location, feeder.options).given("producer");
}

}  // namespace

PreparedRun::PreparedRun(const RunConfig& config, const RunOptions& options, const RunPeers& peers,
                         const std::stop_token& stop)
    : options_(options),
      peers_(peers),
      components_(find_components(config)),
      trace_(options.trace, clock_) {
  components_.processes = peers.processes;
  components_.servers = peers.servers;
  RunConfig adopted = adopt_batches(config, components_, stop);
  const FeederEntry& feeder = *components_.feeder;
  if (options.may_extend && peers.processes == nullptr && may_take_more(adopted, feeder)) {
    adopted.extend_window = true;
  }
  if (peers.processes != nullptr) {
    ensure_data_together(*peers.processes, adopted, feeder, stop);
  } else {
    dataset::ensure_data_of(adopted, feeder, stop);
  }
  // Filling memory and waiting for other processes may take long. An interrupted compilation first
  // saves its results.
  const LeaveOnStop leave(stop, [this] {
    trace_.discard();
    if (peers_.watch != nullptr) peers_.watch->leave();  // this rank is stopped, not lost
    options_.leave();
  });
  write_graph_file(options.trace.graph, resolve(adopted, components_), *components_.model);
  runner_ = std::make_unique<Runner>(adopted, clock_, components_, trace_.trace(), stop);
}

RunResult PreparedRun::run(RunListener* table, std::stop_token stop) {
  RunWatch watch(
      options_.watch, runner_->config(), [this] { return runner_->queues(); }, clock_, table);
  const bool to_file =
      !options_.out.empty() && peers_.is_first() && !find_output(options_.out).is_device;
  StepRecords records(to_file ? step_records_path(options_.out) : "", runner_->config(), clock_);
  ListenerGroup listeners;
  listeners.add(watch.listener());
  listeners.add(records);
  if (peers_.processes == nullptr) return runner_->run(listeners, std::move(stop));
  const PeerWatch::Keeping keeping(peers_.watch, [&](const std::string& reason) {
    RunResult partial = records.so_far();
    partial.reason = reason;
    options_.keep_partial(partial);
    return options_.out;
  });
  cluster::Processes& processes = *peers_.processes;
  const auto enter = [progress = processes.progress()](cluster::RankPhase phase) {
    if (progress != nullptr) progress->enter(phase);
  };
  // Only rank 0 has opened an evaluation set.
  await_all_ready(processes, runner_->config().eval ? 0 : runner_->examples_per_epoch());
  enter(cluster::RankPhase::training);
  RunResult result = runner_->run(listeners, std::move(stop));
  enter(cluster::RankPhase::gathering);
  gather_ranks(processes, result);
  enter(cluster::RankPhase::leaving);
  return result;
}

}  // namespace penstock
