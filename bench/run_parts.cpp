// SPDX-License-Identifier: Apache-2.0
#include "bench/run_parts.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "bench/checkpoint_keeper.h"
#include "bench/compile_progress.h"
#include "bench/machine.h"
#include "bench/training_rules.h"
#include "dataflow/error.h"
#include "trainer/initialise.h"
#include "trainer/processes.h"

namespace penstock {
namespace {

Order order_of(const RunConfig& config) {
  return config.order == "strict" ? Order::strict : Order::relaxed;
}

}  // namespace

RunParts::RunParts(const RunConfig& wanted, Clock& the_clock, const Runner::Components& the_entries,
                   std::stop_token abandon, Trace* the_trace)
    : components(the_entries),
      config(resolve(wanted, components)),
      clock(the_clock),
      trace(the_trace),
      probe(config.instrument),
      backend(
          components.backend->make(options_of(config.device, components.backend->options), clock)),
      spec(batch_spec(config, *components.model)),
      graph(build_graph(*components.model, spec.image, spec.classes)),
      ranks(static_cast<std::size_t>(config.num_gpus)),
      feeder_options_(options_of(config.fake_location, components.feeder->options)),
      update_options_(options_of(config.variable_update, components.update->options)),
      optimizer_options_(options_of(optimizer_text(config), components.optimizer->options)) {
  const std::int32_t neighbours = processes() == nullptr ? 1 : processes()->launch().local_size;
  if (config.num_gpus * neighbours > backend->device_count()) {
    throw ConfigError(fmt::format("--num-gpus is {}, in {} processes of this machine; it has {}",
                                  config.num_gpus, neighbours, backend->device_count()));
  }
  if (components.feeder->outside_reserve != nullptr) {
    const std::int64_t batches = components.feeder->outside_reserve(feeder_options_);
    outside_reserve = static_cast<double>(batches);
  }
  const std::int32_t first_device = processes() == nullptr ? 0 : processes()->launch().local_rank;
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) {
    ranks[static_cast<std::size_t>(rank)].device = backend->open(first_device + rank);
  }
  models = make_models(abandon);
  group = make_group(std::move(abandon));
  const std::optional<Checkpoint> checkpoint = open_checkpoint();
  make_feeders();
  examples_per_epoch = extent.examples > 0 ? static_cast<double>(extent.examples) : kImageNetImages;
  learning_rates = learning_rate_plan(config, *components.model, examples_per_epoch);
  config.num_batches = resolve_steps(config, extent);
  config.num_epochs = 0;
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) make_rank(rank);
  if (checkpoint) restore(*checkpoint);
  note_unused_classes();
  note_unused_loss_scale();
  note_shared_cores();
}

/// Among those of all processes.
std::int32_t RunParts::global_rank(std::int32_t rank) const noexcept {
  return processes() == nullptr ? rank : processes()->launch().rank;
}

std::vector<Device*> RunParts::devices() const {
  std::vector<Device*> devices;
  for (const Rank& rank : ranks) devices.push_back(rank.device.get());
  return devices;
}

std::unique_ptr<CollectiveGroup> RunParts::make_group(std::stop_token abandon) {
  if (processes() != nullptr) {
    const auto patience = std::chrono::duration<double>(config.timeout);
    return processes()->make_group({.device = *ranks.front().device,
                                    .patience = std::chrono::round<Nanoseconds>(patience),
                                    .stopping = stopping.get_token(),
                                    .abandon = std::move(abandon)});
  }
  return backend->make_group(devices(), clock, std::move(abandon));
}

std::unique_ptr<ModelStore> RunParts::make_models(std::stop_token abandon) {
  if (processes() != nullptr) return nullptr;
  return std::make_unique<ThreadsModelStore>(devices(), clock, std::move(abandon));
}

CheckpointInfo RunParts::checkpoint_info(std::int64_t step) const {
  return {.model = std::string(components.model->name),
          .optimizer = std::string(components.optimizer->name),
          .image = spec.image,
          .classes = spec.classes,
          .step = step,
          .seed = config.seed};
}

/// The newest one in --train-dir, checked, or none; `first_step` is then its step.
std::optional<Checkpoint> RunParts::open_checkpoint() {
  const std::vector<std::int64_t> steps = prepare_train_dir(config);
  if (steps.empty()) return std::nullopt;
  const std::filesystem::path path = checkpoint_path(config.train_dir, steps.back());
  Checkpoint checkpoint = read_checkpoint(path);
  refuse_foreign(checkpoint.info(), checkpoint_info(0), config.eval, path);
  first_step = checkpoint.info().step;
  if (checkpoint.info().seed != config.seed) {
    probe.note(fmt::format("'{}' was trained with --seed {}: this run goes on in another order",
                           path.string(), checkpoint.info().seed));
  }
  return checkpoint;
}

void RunParts::restore(const Checkpoint& checkpoint) {
  for (Rank& rank : ranks) {
    checkpoint.restore(*rank.executable, config.eval ? nullptr : rank.optimizer.get());
    rank.executable->set_step(first_step);
    rank.replica->set_step(first_step);
  }
  probe.note(
      fmt::format("goes on from '{}'", checkpoint_path(config.train_dir, first_step).string()));
}

/// Rings and feeders: of the host for all ranks, or one for each device.
void RunParts::make_feeders() {
  const bool on_devices = components.feeder->slots == MemoryKind::device;
  if (!on_devices) {
    Device& first = *ranks.front().device;
    host_ring = std::make_unique<BatchRing>(spec, static_cast<std::size_t>(config.prefetch), first,
                                            MemoryKind::pinned, devices(), order_of(config), clock);
    host_feeder = make_feeder(spec, data_plan(0), first, config.prefetch, probe);
    extent = host_feeder->extent();
  }
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    Rank& rank = ranks[index];
    Device* const device = rank.device.get();
    rank.ring = std::make_unique<BatchRing>(spec, static_cast<std::size_t>(config.device_slots),
                                            *device, MemoryKind::device, std::span(&device, 1),
                                            Order::relaxed, clock);
    if (on_devices) {
      rank.feeder = make_feeder(spec, data_plan(static_cast<std::int32_t>(index)), *device,
                                config.device_slots, probe);
    } else {
      rank.stager =
          std::make_unique<Stager>(*host_ring, index, *rank.ring, *device,
                                   marks(Work::staging, static_cast<std::int32_t>(index)));
      rank.stager->count(probe.stage({"copy", "stager"}), clock);
    }
  }
  if (trace != nullptr) watch_rings();
}

void RunParts::watch_rings() {
  if (host_ring) trace->watch(*host_ring, "host ring", -1);
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    trace->watch(*ranks[index].ring, "device ring", static_cast<std::int32_t>(index));
  }
}

DataPlan RunParts::data_plan(std::int32_t rank) const {
  DataPlan data{.directory = config.data_dir,
                .order = order_of(config),
                .seed = config.seed,
                .first_sample = 0,
                .classes = spec.classes};
  if (processes() != nullptr || components.feeder->slots == MemoryKind::device) {
    data.rank = global_rank(rank);
    data.ranks = static_cast<std::int32_t>(all_devices(config));
  }
  const std::int64_t taken_a_step = spec.images * (all_devices(config) / data.ranks);
  data.first_sample = static_cast<std::uint64_t>(first_step * taken_a_step);
  return data;
}

std::unique_ptr<Feeder> RunParts::make_feeder(const BatchSpec& batches, DataPlan data,
                                              Device& device, std::int32_t slots, Probe& counters) {
  const auto timeout = std::chrono::duration<double>(config.timeout);
  return components.feeder->make(FeederContext{
      .spec = batches,
      .device = device,
      .clock = clock,
      .options = feeder_options_,
      .data = std::move(data),
      .probe = counters,
      .marks = marks(Work::feeding),
      .on_bad_sample = parse_bad_sample_policy(config.on_bad_sample),
      .timeout = std::chrono::round<Nanoseconds>(timeout),
      .threads = config.feeder_threads,
      .slots = slots,
      .seed = config.seed,
  });
}

ExecutableSpec RunParts::executable_spec(const BatchSpec& batches, std::int32_t rank) const {
  return {.batch = batches,
          .precision = parse_precision(config.precision),
          .threads = config.compute_threads,
          .local_ranks = config.num_gpus,
          .seed = config.seed + static_cast<std::uint64_t>(global_rank(rank)),
          .loss_scale = loss_scale_of(config),
          .cache_directory = config.cache_dir};
}

std::unique_ptr<Executable> RunParts::compile(const BatchSpec& batches, std::int32_t rank) {
  CompileProgress progress(stderr, config.model);
  ExecutableSpec compilation = executable_spec(batches, rank);
  if (global_rank(rank) == 0 || processes() == nullptr) {
    compilation.progress = [&](std::size_t done, std::size_t total) {
      progress.update(done, total);
    };
  }
  return backend->compile(graph, compilation, *ranks[static_cast<std::size_t>(rank)].device);
}

void RunParts::make_rank(std::int32_t index) {
  Rank& rank = ranks[static_cast<std::size_t>(index)];
  rank.executable = compile(spec, index);
  if (global_rank(index) == 0) initialise(*rank.executable, graph, config.seed);
  rank.optimizer = backend->make_optimizer({*components.optimizer, optimizer_options_},
                                           executable_spec(spec, index), *rank.device);
  rank.collective = group->join(global_rank(index));
  rank.update =
      components.update->make({.collective = *rank.collective,
                               .optimizer = *rank.optimizer,
                               .reduction = parse_gradient_reduction(config.gradient_reduction),
                               .local_ranks = config.num_gpus,
                               .options = update_options_,
                               .exchange = make_exchange(rank),
                               .device = rank.device.get(),
                               .models = models.get(),
                               .probe = &probe,
                               .seed = config.seed});
  refuse_partial_checkpoints(rank);
  const Replica::Parts parts{*rank.executable, *rank.optimizer, *rank.update,
                             [this](std::int64_t step) {
                               Hyper hyper = hyper_of(config);
                               hyper.learning_rate = learning_rate(learning_rates, step);
                               hyper.step = step;
                               return hyper;
                             },
                             rank.collective->recordable() && rank.update->recordable(),
                             // A trace has its times already.
                             Marks(backend->marks(), nullptr, Work::staging, index)};
  const Phase phase = config.forward_only ? Phase::forward_only : Phase::train;
  rank.replica = std::make_unique<Replica>(*rank.ring, *rank.device, parts, phase, clock);
}

/// Of devices that are made of the host's cores: others have only begun what a step tells of.
GradientExchange* RunParts::make_exchange(const Rank& rank) {
  const bool trains = !config.forward_only && !config.eval;
  if (!components.backend->computes_on_host || !trains || rank.collective->world().size == 1) {
    return nullptr;
  }
  exchanges.push_back(std::make_unique<GradientExchange>(
      *rank.collective, rank.executable->parameters(), *rank.device, clock, bucket_limits(config)));
  return exchanges.back().get();
}

void RunParts::refuse_partial_checkpoints(const Rank& rank) const {
  if (config.train_dir.empty() || components.optimizer->slots == 0) return;
  if (rank.update->rank_0_knows_all()) return;
  throw ConfigError(fmt::format(
      "--train-dir is '{}', and with --variable-update {} rank 0 would save a part only of what "
      "the optimizer {} remembers; leave --train-dir out, or use placement=first",
      config.train_dir, config.variable_update, components.optimizer->name));
}

Marks RunParts::marks(Work work, std::int32_t rank) const {
  return {backend->marks(), trace != nullptr ? &trace->spans() : nullptr, work, rank};
}

void RunParts::note_unused_classes() {
  if (extent.classes == 0 || extent.classes == spec.classes) return;
  probe.note(fmt::format("'{}' has {} classes and the model {} outputs; the others never occur",
                         config.data_dir, extent.classes, spec.classes));
}

void RunParts::note_unused_loss_scale() {
  if (!config.fp16_loss_scale || parse_precision(config.precision) == Precision::f16) return;
  probe.note(fmt::format("--fp16-loss-scale is {}, and {} trains without one: it is ignored",
                         *config.fp16_loss_scale, config.precision));
}

/// An OpenMP trainer loses far more than the load when something else runs on one of its cores.
void RunParts::note_shared_cores() {
  if (!components.backend->computes_on_host || components.feeder->is_ceiling) return;
  const std::int32_t computing = config.compute_threads * config.num_gpus;
  if (computing + config.feeder_threads > usable_cores()) {
    probe.note(fmt::format(
        "{} computing and {} feeding threads share {} cores, so that feeding slows computing down; "
        "feeding runs at nice 19; fewer --compute-threads or --feeder-threads keep them apart",
        computing, config.feeder_threads, usable_cores()));
  } else {
    probe.note("feeding runs at nice 19, beside a trainer on the same machine's cores");
  }
}

std::uint64_t RunParts::published() const {
  if (host_ring) return host_ring->stats().published;
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) sum += rank.ring->stats().published;
  return sum;
}

std::uint64_t RunParts::taken() const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) {
    const RingStats ring = rank.ring->stats();
    sum += ring.published - ring.filled_slots;
  }
  return sum;
}

ExchangeTimes RunParts::exchange_times() const {
  ExchangeTimes sum;
  for (const auto& exchange : exchanges) sum += exchange->times();
  return sum;
}

}  // namespace penstock
