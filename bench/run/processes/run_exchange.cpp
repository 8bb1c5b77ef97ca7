// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/run_exchange.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "bench/config/exchange_rules.h"
#include "bench/run/processes/process_run.h"
#include "trainer/cluster/exchange_wait.h"
#include "trainer/collectives/link_collective.h"
#include "trainer/collectives/nested.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

/// Longer than any step.
constexpr Nanoseconds kUnwatched = std::chrono::hours(24);

/// The choice for `ranks` ranks, of which `neighbours` are on this host.
collectives::ExchangeChoice choice_for(const RunExchange& run, std::int32_t ranks,
                                       std::int32_t neighbours) {
  const bool compact = run.config.gradient_wire != to_string(WireFormat::f32);
  Counter* const nonfinite = compact ? &run.probe.counter("nonfinite_gradient_sums") : nullptr;
  return exchange_choice(run.config, ranks, neighbours, nonfinite);
}

std::unique_ptr<CollectiveGroup> ask_backend(const RunExchange& run, const ProcessRanks* ranks) {
  const GroupSpec spec{.exchange = exchange_spec(run.config), .processes = ranks};
  return run.on_host ? run.backend.Backend::make_group(run.devices, spec, run.clock, run.abandon)
                     : run.backend.make_group(run.devices, spec, run.clock, run.abandon);
}

std::unique_ptr<CollectiveGroup> make_thread_group(const RunExchange& run) {
  if (!chooses_exchange(run.config) || exchanges_on_gpus(run.config)) {
    return ask_backend(run, nullptr);
  }
  const auto ranks = static_cast<std::int32_t>(run.devices.size());
  const collectives::ExchangeChoice choice = choice_for(run, ranks, ranks);
  std::unique_ptr<CollectiveGroup> group;
  if (choice.method == collectives::ExchangeMethod::links) {
    group = std::make_unique<collectives::LinkGroup>(run.devices, run.clock,
                                                     patience_of(run.config), run.abandon, choice);
  } else {
    group =
        std::make_unique<collectives::ThreadsGroup>(run.devices, run.clock, run.abandon, choice);
  }
  return group;
}

/// A group of the processes, with one rank each. If the processes are watched, the watch ends waits
/// that take too long.
std::unique_ptr<CollectiveGroup> make_group_across(const RunExchange& run,
                                                   collectives::ExchangeChoice choice) {
  const bool watched = run.processes->progress() != nullptr;
  return run.processes->make_group(
      {.device = *run.devices.front(),
       .patience = watched ? kUnwatched : step_patience(run.config).step,
       .stopping = run.stopping,
       .abandon = run.abandon,
       .choice = std::move(choice)});
}
/// The group for the exchange in every step.
std::unique_ptr<CollectiveGroup> make_step_group_across(const RunExchange& run,
                                                        collectives::ExchangeChoice choice) {
  cluster::RankProgress* const progress = run.processes->progress();
  auto group = make_group_across(run, std::move(choice));
  if (progress == nullptr) return group;
  return cluster::watch(std::move(group), step_patience(run.config), *progress, run.clock);
}

/// Exchanges tensors in host memory: first inside this process, then across processes.
class HostGroup final : public CollectiveGroup {
 public:
  explicit HostGroup(const RunExchange& run) : HostGroup(run, run.processes->launch()) {}
  std::unique_ptr<Collective> join(std::int32_t rank) override { return ranks_.join(rank); }
  std::string how() const override { return processes_->how(); }

 private:
  HostGroup(const RunExchange& run, const cluster::Launch& launch)
      : processes_(make_step_group_across(run, choice_for(run, launch.size, launch.local_size))),
        across_(processes_->join(launch.rank)),
        ranks_(run.devices.size() > 1 ? std::make_unique<collectives::ThreadsGroup>(
                                            run.devices, run.clock, run.abandon)
                                      : nullptr,
               run.devices, *across_) {}

  const std::unique_ptr<CollectiveGroup> processes_;
  const std::unique_ptr<Collective> across_;
  collectives::NestedGroup ranks_;
};

}  // namespace

ProcessMeeting::ProcessMeeting(const RunExchange& run)
    : is_first_(run.processes->launch().rank == 0),
      progress_(run.processes->progress()),
      stream_(run.devices.front()->make_stream()),
      group_(make_group_across(run, {.method = collectives::ExchangeMethod::mpi})),
      collective_(group_->join(run.processes->launch().rank)) {}

std::int64_t ProcessMeeting::meet(Nanoseconds patience, std::int64_t steps) {
  const cluster::RankWait wait(progress_, std::chrono::steady_clock::now() + patience);
  float said = is_first_ ? static_cast<float>(std::min(steps, kMostSteps)) : 0;
  collective_->all_reduce_sum({&said, 1}, *stream_);
  return static_cast<std::int64_t>(said);
}

Nanoseconds patience_of(const RunConfig& config) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(config.timeout));
}

std::unique_ptr<CollectiveGroup> make_exchange(const RunExchange& run) {
  refuse_unfit_exchange(run.config);
  if (run.processes == nullptr) return make_thread_group(run);
  const cluster::Launch& launch = run.processes->launch();
  const auto ranks = static_cast<std::int32_t>(run.devices.size());
  const auto gather = [&run](std::string_view text) {
    return run.processes->all_gather(text, cluster::Processes::kRendezvous,
                                     "choosing how ranks exchange");
  };
  const ProcessRanks processes{
      .first = launch.rank * ranks,
      .size = launch.size * ranks,
      .all_gather = gather,
      .make_host_group = [&run] { return std::make_unique<HostGroup>(run); }};
  return ask_backend(run, &processes);
}

}  // namespace penstock
