// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_parts.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <span>
#include <thread>

#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "bench/record/machine.h"
#include "bench/run/checkpoint_keeper.h"
#include "bench/run/processes/process_run.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/machine/memory_limit.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/process_models.h"
#include "trainer/initialise.h"
#include "trainer/update_strategy.h"
#include "trainer/updates/host_weights.h"

namespace penstock {
namespace {

/// In a watched run, readers wait twice as long, so that the watch can name a lost rank first.
Nanoseconds model_patience(const RunConfig& config, const cluster::RankProgress* progress) {
  return patience_of(config) * (progress == nullptr ? 1 : 2);
}

/// Null if the update does not read models.
std::unique_ptr<cluster::ModelStore> make_models(RunSetup& setup, std::vector<Device*> devices,
                                                 const std::stop_token& stopping,
                                                 const std::stop_token& abandon) {
  if (setup.components.update->make_reading == nullptr) return nullptr;
  if (setup.processes() == nullptr) {
    return std::make_unique<cluster::ThreadsModelStore>(std::move(devices), setup.clock, abandon);
  }
  return cluster::make_process_models(
      {.processes = *setup.processes(),
       .devices = std::move(devices),
       .clock = setup.clock,
       .probe = setup.probe,
       .patience = model_patience(setup.config, setup.processes()->progress()),
       .stopping = stopping,
       .abandon = abandon});
}

void restore(const Checkpoint& checkpoint, RunSetup& setup, std::vector<RunParts::Rank>& ranks,
             std::int64_t first_step) {
  const RunConfig& config = setup.config;
  bool whole = true;
  for (RunParts::Rank& rank : ranks) {
    if (config.eval) {
      checkpoint.restore(*rank.executable);
    } else {
      whole &= checkpoint.restore(*rank.executable, *rank.optimizer, *rank.update);
    }
    const Tensor scale = rank.optimizer->state().loss_scale;
    if (checkpoint.info().loss_scale && scale.count > 0) {
      write_loss_scale(*checkpoint.info().loss_scale, scale, *rank.device);
    }
    rank.executable->set_step(first_step);
    rank.replica->set_step(first_step);
  }
  const std::string path = checkpoint_path(config.train_dir, first_step).string();
  setup.probe.note(fmt::format("goes on from '{}'", path));
  if (config.eval) return;
  if (!whole) {
    setup.probe.note(fmt::format(
        "this run is not identical to an uninterrupted one: '{}' was saved by another update, and "
        "lacks the state of --variable-update {}",
        path, config.variable_update));
  }
  if (config.num_gpus > 1 && setup.components.update->agreement != Agreement::identical) {
    setup.probe.note(fmt::format(
        "this run is not identical to an uninterrupted one: with --variable-update {} the devices "
        "hold different weights, but all {} resume from those of the first, which the checkpoint "
        "holds",
        config.variable_update, config.num_gpus));
  }
}

void tell_step(const RunSetup& setup, std::int64_t step) {
  cluster::RankProgress* const progress =
      setup.processes() == nullptr ? nullptr : setup.processes()->progress();
  if (progress != nullptr) progress->begin_step(step, setup.clock.now());
}

void refuse_partial_checkpoints(const RunSetup& setup, const RunParts::Rank& rank) {
  const RunConfig& config = setup.config;
  if (config.train_dir.empty()) return;
  const KeptArenas kept = rank.update->kept(rank.executable->parameters());
  if (kept.rank_0_knows_all) return;
  const bool carries = kept.carried.count > 0;
  if (setup.components.optimizer->slots == 0 && !carries) return;
  throw ConfigError(
      "--train-dir is '{}', and with --variable-update {} rank 0 would save only a part of the "
      "state of {}; leave --train-dir out, or use placement=first",
      config.train_dir, config.variable_update,
      carries ? "the update" : fmt::format("the optimizer {}", setup.components.optimizer->name));
}

void note_unused_classes(RunSetup& setup, const DataExtent& extent) {
  if (extent.classes == 0 || extent.classes == setup.spec.classes) return;
  setup.probe.note(
      fmt::format("'{}' has {} classes and the model {} outputs; the others never occur",
                  setup.config.data_dir, extent.classes, setup.spec.classes));
}

void note_unused_loss_scale(RunSetup& setup, bool has_loss_scale) {
  if (setup.config.fp16_enable_auto_loss_scale && !has_loss_scale) {
    setup.probe.note(
        fmt::format("--fp16-enable-auto-loss-scale is ignored: in {} the device '{}' trains "
                    "without a loss scale",
                    setup.config.precision, setup.components.backend->name));
  }
}

/// An OpenMP trainer loses far more than the load if another thread runs on one of its cores.
void note_shared_cores(RunSetup& setup) {
  const RunConfig& config = setup.config;
  if (!setup.components.backend->computes_on_host || setup.components.feeder->is_ceiling) return;
  const std::int32_t computing = config.compute_threads * config.num_gpus;
  if (computing + config.feeder_threads > usable_cores()) {
    setup.probe.note(fmt::format(
        "{} computing and {} feeding threads share {} cores, so that feeding slows computing down; "
        "feeding runs at nice 19; fewer --compute-threads or --feeder-threads keep them apart",
        computing, config.feeder_threads, usable_cores()));
  } else {
    setup.probe.note("feeding runs at nice 19, beside a trainer on the same machine's cores");
  }
}

/// Stagers of a loader's run hold batches as long as its loop needs them.
Holding holding_of(const RunConfig& config) {
  const std::optional<std::int32_t> ahead = parse_loop(config.loop).ahead;
  if (!ahead) return Holding::none;
  return *ahead == 0 ? Holding::read : Holding::launched;
}

/// "host ring", or "host ring 1" if there are several.
std::string host_ring_name(const RunParts::Feed& feed, std::size_t index) {
  return feed.hosts.size() == 1 ? "host ring" : fmt::format("host ring {}", index);
}

/// Notes how gradients are exchanged, and that accuracies are meaningless if the device computes
/// nothing.
void note_exchange(RunSetup& setup, const Executable& executable, const CollectiveGroup& group) {
  const RunConfig& config = setup.config;
  const bool computes =
      !executable.parameters().parameters.empty() && !setup.components.backend->emulates;
  if (computes) {
    const std::string how = group.how();
    if (all_devices(config) > 1 && !how.empty()) setup.probe.note("ranks exchange through " + how);
  } else if (config.eval || config.forward_only || config.print_training_accuracy ||
             evaluates_while_training(config)) {
    setup.probe.note(fmt::format("accuracies are printed as 0: the device '{}' computes nothing",
                                 setup.components.backend->name));
  }
}

}  // namespace

RunParts::RunParts(const RunConfig& typed, Clock& clock, const Runner::Components& components,
                   std::stop_token stop, std::stop_token abandon, Trace* trace)
    : setup(typed, clock, components, std::move(stop), trace),
      update_options_(options_of(setup.config.variable_update, components.update->options)),
      optimizer_options_(options_of(optimizer_text(setup.config), components.optimizer->options)) {
  RunConfig& config = setup.config;
  if (std::int64_t{config.num_gpus} * setup.neighbours() > setup.backend->device_count()) {
    throw ConfigError("--num-gpus is {}, in {} processes of this machine; it has {}",
                      config.num_gpus, setup.neighbours(), setup.backend->device_count());
  }
  if (components.feeder->outside_reserve != nullptr) {
    const std::int64_t batches =
        components.feeder->outside_reserve(setup.feeder_options, setup.spec);
    feed.outside_reserve = static_cast<double>(batches);
  }
  const std::int32_t first_device =
      setup.processes() == nullptr ? 0 : setup.processes()->launch().local_rank * config.num_gpus;
  ranks.resize(static_cast<std::size_t>(config.num_gpus));
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) {
    ranks[static_cast<std::size_t>(rank)].device = setup.backend->open(first_device + rank);
  }
  const BackendEntry& backend = *components.backend;
  require_memory(memory_needs(setup, backend.computes_on_host || backend.emulates));
  exchange.models = make_models(setup, devices(), exchange.stopping.get_token(), abandon);
  if (components.servers != nullptr) {
    components.servers->attach(exchange.stopping.get_token(), abandon);
  }
  if (setup.weights_on_host()) exchange.host = std::make_unique<HostDevice>(clock);
  const bool on_host = exchange.host != nullptr;
  const RunExchange plan{
      .config = config,
      .backend = *setup.backend,
      .devices = on_host ? std::vector(ranks.size(), exchange.host.get()) : devices(),
      .on_host = on_host,
      .processes = setup.exchanges_inside() ? nullptr : setup.processes(),
      .clock = setup.clock,
      .probe = setup.probe,
      .stopping = exchange.stopping.get_token(),
      .abandon = abandon};
  exchange.group = make_exchange(plan);
  if (!setup.exchanges_inside()) exchange.meeting = std::make_unique<ProcessMeeting>(plan);
  const std::optional<Checkpoint> checkpoint = open_checkpoint();
  make_feeders();
  schedule.examples_per_epoch =
      feed.extent.examples > 0 ? static_cast<double>(feed.extent.examples) : kImageNetImages;
  schedule.learning_rates =
      learning_rate_plan(config, *components.model, schedule.examples_per_epoch);
  config.num_batches = resolve_steps(config, feed.extent);
  config.num_epochs = 0;
  compile_ranks();
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) make_rank(rank);
  if (checkpoint) restore(*checkpoint, setup, ranks, schedule.first_step);
  if (trace != nullptr && components.backend->emulates) {
    trace->emulate(setup.graph, !config.forward_only);
  }
  note_unused_classes(setup, feed.extent);
  note_unused_loss_scale(setup, loss_scale().has_value());
  note_shared_cores(setup);
  note_exchange(setup, *ranks.front().executable, *exchange.group);
}

/// Updates may have threads, which must end before the models that they read.
RunParts::~RunParts() {
  for (Rank& rank : ranks) rank.update.reset();
}

std::vector<Device*> RunParts::devices() const {
  std::vector<Device*> devices;
  for (const Rank& rank : ranks) devices.push_back(rank.device.get());
  return devices;
}

CheckpointInfo RunParts::checkpoint_info(std::int64_t step) const {
  return {.model = std::string(setup.components.model->name),
          .optimizer = std::string(setup.components.optimizer->name),
          .image = setup.spec.image,
          .classes = setup.spec.classes,
          .step = step,
          .seed = setup.config.seed,
          .loss_scale = loss_scale()};
}

std::optional<LossScale> RunParts::loss_scale() const {
  const Rank& first = ranks.front();
  if (first.optimizer == nullptr) return std::nullopt;
  const Tensor scale = first.optimizer->state().loss_scale;
  if (scale.count == 0) return std::nullopt;
  return read_loss_scale(scale, *first.device);
}

/// The newest checkpoint in --train-dir, after a check, or none.
std::optional<Checkpoint> RunParts::read_newest_checkpoint() {
  const RunConfig& config = setup.config;
  const std::vector<std::int64_t> steps = prepare_train_dir(config);
  if (steps.empty()) return std::nullopt;
  const std::filesystem::path path = checkpoint_path(config.train_dir, steps.back());
  Checkpoint checkpoint = read_checkpoint(path);
  refuse_foreign(checkpoint.info(), checkpoint_info(0), config.eval, path);
  if (checkpoint.info().seed != config.seed) {
    setup.probe.note(
        fmt::format("'{}' was trained with --seed {}: this run reads the data in another order",
                    path.string(), checkpoint.info().seed));
  }
  return checkpoint;
}

/// The checkpoint that the run resumes from, or none. In a run of several processes it is that of
/// rank 0's --train-dir, which rank 0 sends to the others. Sets `first_step` to its step.
std::optional<Checkpoint> RunParts::open_checkpoint() {
  std::optional<Checkpoint> checkpoint;
  const auto read = [&]() -> std::span<const std::byte> {
    std::optional<Checkpoint> newest = read_newest_checkpoint();
    if (!newest) return {};
    return checkpoint.emplace(std::move(*newest)).bytes();
  };
  if (setup.processes() == nullptr) {
    read();
  } else if (std::vector<std::byte> bytes =
                 from_rank_0(*setup.processes(), "receiving rank 0's checkpoint", read);
             !bytes.empty()) {
    checkpoint.emplace(std::move(bytes));
  }
  if (checkpoint) schedule.first_step = checkpoint->info().step;
  return checkpoint;
}

/// Compiles the first rank alone, so that the others find its cached findings about the device on
/// disk. The others then compile in parallel, unless they would compete for host cores; the second
/// rank shows progress for them.
void RunParts::compile_ranks() {
  const auto compile_rank = [this](std::size_t rank) {
    Device& device = *ranks[rank].device;
    auto executable = setup.compile(setup.spec, static_cast<std::int32_t>(rank), device, rank < 2);
    if (exchange.host != nullptr) {
      executable = std::make_unique<updates::HostWeights>(std::move(executable), device);
    }
    ranks[rank].executable = std::move(executable);
  };
  if (setup.components.backend->computes_on_host) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) compile_rank(rank);
    return;
  }
  compile_rank(0);
  std::vector<std::exception_ptr> failures(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          compile_rank(rank);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
}

/// Returns where the device keeps a loss scale that an optimizer on the host adapts; empty:
/// nowhere.
Tensor RunParts::make_optimizer(Rank& rank, const ExecutableSpec& spec) {
  const OptimizerChoice choice{*setup.components.optimizer, optimizer_options_,
                               stored_weights(setup.config)};
  if (exchange.host == nullptr) {
    rank.optimizer = setup.backend->make_optimizer(choice, spec, *rank.device);
    return {};
  }
  Tensor loss_scale;
  if (spec.loss_scale_count_to > 0) {
    loss_scale = setup.backend->make_optimizer(choice, spec, *rank.device)->state().loss_scale;
  }
  FiniteRules rules = finite_rules(spec);
  if (loss_scale.count == 0) rules.count_to = 0;
  rank.optimizer =
      make_host_optimizer(choice, parallel_for_on(setup.config.compute_threads), rules);
  return loss_scale;
}

void RunParts::make_rank(std::int32_t index) {
  Rank& rank = ranks[static_cast<std::size_t>(index)];
  if (setup.global_rank(index) == 0) initialise(*rank.executable, setup.graph, setup.config.seed);
  const Tensor device_loss_scale = make_optimizer(rank, setup.executable_spec(setup.spec, index));
  rank.collective =
      exchange.group->join(setup.exchanges_inside() ? index : setup.global_rank(index));
  const auto hyper = [this](std::int64_t step) {
    Hyper terms = hyper_of(setup.config);
    terms.learning_rate = learning_rate(schedule.learning_rates, step);
    terms.step = step;
    return terms;
  };
  const UpdateContext context{
      .collective = *rank.collective,
      .optimizer = *rank.optimizer,
      .reduction = parse_gradient_reduction(setup.config.gradient_reduction),
      .local_ranks = setup.config.num_gpus,
      .options = update_options_,
      .exchange = overlap(rank),
      .device = exchange.host != nullptr ? exchange.host.get() : rank.device.get(),
      .probe = &setup.probe};
  const UpdateEntry& update = *setup.components.update;
  if (setup.components.servers != nullptr && update.make_served != nullptr) {
    rank.update =
        update.make_served(context, {*setup.components.servers, hyper, schedule.first_step});
  } else if (exchange.models != nullptr) {
    rank.update = update.make_reading(context, {*exchange.models, setup.clock, setup.config.seed});
  } else {
    rank.update = update.make(context);
  }
  if (exchange.host != nullptr) {
    BucketLimits limits = bucket_limits(setup.config);
    limits.pieces = 0;
    rank.update =
        updates::update_on_host({static_cast<updates::HostWeights&>(*rank.executable), *rank.device,
                                 *exchange.host, *rank.optimizer, limits, device_loss_scale},
                                std::move(rank.update));
  }
  refuse_partial_checkpoints(setup, rank);
  // The host exchanges after backward, and the step ends with the last rank's part of it.
  const bool waits =
      exchange.host != nullptr ||
      (context.exchange == nullptr && all_devices(setup.config) > 1 &&
       setup.ranks_together() == 0 && !setup.components.backend->exchanges_gradients);
  const Replica::Parts parts{*rank.executable, *rank.optimizer, *rank.update,
                             [this, hyper](std::int64_t step) {
                               tell_step(setup, step);
                               return hyper(step);
                             },
                             rank.collective->recordable() && rank.update->recordable() && !waits,
                             context.exchange,
                             // A trace has these times already.
                             Marks(setup.backend->marks(), nullptr, Work::staging, index), waits};
  const Phase phase = setup.config.forward_only ? Phase::forward_only : Phase::train;
  rank.replica = std::make_unique<Replica>(*rank.ring, *rank.device, parts, phase, setup.clock);
}

/// On devices made of host cores, a thread exchanges the buckets. Other devices exchange on a
/// stream, because the host only enqueues their steps.
GradientExchange* RunParts::overlap(const Rank& rank) {
  const RunConfig& config = setup.config;
  Collective& collective = *rank.collective;
  const ParameterSet& set = rank.executable->parameters();
  if (config.forward_only || config.eval || collective.world().size == 1) return nullptr;
  if (setup.components.backend->computes_on_host) {
    exchange.exchanges.push_back(std::make_unique<ThreadExchange>(
        collective, set, *rank.device, setup.clock, bucket_limits(config), rank.ring->slots()));
  } else if (collective.overlaps()) {
    exchange.exchanges.push_back(std::make_unique<StreamExchange>(
        collective, set, *rank.device, setup.clock, bucket_limits(config), rank.ring->slots()));
  } else {
    return nullptr;
  }
  return exchange.exchanges.back().get();
}

ExchangeTimes RunParts::exchange_times() const {
  ExchangeTimes sum;
  for (const auto& overlapped : exchange.exchanges) sum += overlapped->times();
  return sum;
}

void RunParts::make_feeders() {
  const bool on_devices = setup.feeds_device_slots(), one_each = setup.feeds_each_device();
  const std::vector<Device*> all = devices();
  feed.hosts.resize(static_cast<std::size_t>(setup.host_feeders()));
  for (std::size_t index = 0; index < feed.hosts.size(); ++index) {
    HostFeed& host = feed.hosts[index];
    host.slot_memory =
        std::make_unique<SlotMemory>(*ranks[index].device, setup.config, setup.probe);
    host.ring = std::make_unique<BatchRing>(
        setup.spec, static_cast<std::size_t>(setup.config.prefetch), *host.slot_memory,
        MemoryKind::pinned,
        one_each ? std::span(all).subspan(index, 1) : std::span<Device* const>(all), setup.order(),
        setup.clock);
    host.ring->accept_foreign();  // only stagers read it
    host.ring->fill_in_groups(static_cast<std::size_t>(setup.config.batch_group_size));
    host.feeder = setup.make_feeder(
        setup.spec, setup.data_plan(static_cast<std::int32_t>(index), schedule.first_step),
        *host.slot_memory, setup.config.prefetch, setup.probe);
    feed.extent = host.feeder->extent();
  }
  if (all_devices(setup.config) > 1 && follows_loop(setup.config, *setup.components.feeder)) {
    setup.probe.note(one_each ? "each device has its own loader, as each rank of a training; "
                                "--loader-per process shares one"
                              : "the devices of a process share one loader (--loader-per process)");
  }
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    Rank& rank = ranks[index];
    Device* const device = rank.device.get();
    rank.ring = std::make_unique<BatchRing>(
        setup.spec, static_cast<std::size_t>(setup.config.device_slots), *device,
        MemoryKind::device, std::span(&device, 1), Order::relaxed, setup.clock);
    if (on_devices) {
      rank.feeder = setup.make_feeder(
          setup.spec, setup.data_plan(static_cast<std::int32_t>(index), schedule.first_step),
          *device, setup.config.device_slots, setup.probe);
    } else {
      rank.stager = std::make_unique<Stager>(
          *feed.hosts[one_each ? index : 0].ring, one_each ? 0 : index, *rank.ring, *device,
          setup.marks(Work::staging, static_cast<std::int32_t>(index)), holding_of(setup.config));
      rank.stager->count(setup.probe.stage({"copy", "stager", 1, StageRole::copies}), setup.clock);
    }
  }
  if (setup.trace == nullptr) return;
  for (std::size_t index = 0; index < feed.hosts.size(); ++index) {
    setup.trace->watch(*feed.hosts[index].ring, host_ring_name(feed, index), -1);
  }
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    setup.trace->watch(*ranks[index].ring, "device ring", static_cast<std::int32_t>(index));
  }
}

std::vector<std::pair<std::string, BatchRing*>> RunParts::rings() const {
  std::vector<std::pair<std::string, BatchRing*>> rings;
  for (std::size_t index = 0; index < feed.hosts.size(); ++index) {
    rings.emplace_back(host_ring_name(feed, index), feed.hosts[index].ring.get());
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    rings.emplace_back(fmt::format("device ring {}", rank), ranks[rank].ring.get());
  }
  return rings;
}

std::vector<Feeder*> RunParts::feeders() const {
  std::vector<Feeder*> feeders;
  for (const HostFeed& host : feed.hosts) feeders.push_back(host.feeder.get());
  for (const Rank& rank : ranks) {
    if (rank.feeder) feeders.push_back(rank.feeder.get());
  }
  return feeders;
}

std::uint64_t RunParts::published() const {
  std::uint64_t sum = 0;
  for (const HostFeed& host : feed.hosts) sum += host.ring->monitor().stats().published;
  if (!feed.hosts.empty()) return sum;
  for (const Rank& rank : ranks) sum += rank.ring->monitor().stats().published;
  return sum;
}

std::uint64_t RunParts::taken() const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) {
    const RingStats ring = rank.ring->monitor().stats();
    sum += ring.published - ring.filled_slots;
  }
  return sum;
}

}  // namespace penstock
