// SPDX-License-Identifier: Apache-2.0
#include "bench/run_parts.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "bench/checkpoint_keeper.h"
#include "bench/compile_progress.h"
#include "bench/machine.h"
#include "bench/run_exchange.h"
#include "bench/slot_memory.h"
#include "bench/step_log.h"
#include "bench/step_table.h"
#include "bench/training_rules.h"
#include "dataflow/error.h"
#include "dataflow/memory_limit.h"
#include "trainer/initialise.h"
#include "trainer/process_models.h"
#include "trainer/processes.h"
#include "trainer/servers/connection.h"

namespace penstock {
namespace {

/// As model and feeder have them.
BatchSpec agreed_batches(const RunConfig& config, const Runner::Components& components) {
  BatchSpec batches = batch_spec(config, *components.model);
  const FeederEntry& feeder = *components.feeder;
  if (feeder.shape_batches != nullptr) {
    feeder.shape_batches(options_of(config.fake_location, feeder.options), batches);
  }
  return batches;
}

/// Where the ranks are watched, whoever does that names a lost one before its readers give up.
Nanoseconds model_patience(const RunConfig& config, const RankProgress* progress) {
  return patience_of(config) * (progress == nullptr ? 1 : 2);
}

}  // namespace

RunParts::RunParts(const RunConfig& wanted, Clock& the_clock, const Runner::Components& the_entries,
                   std::stop_token stop, std::stop_token abandon, Trace* the_trace)
    : components(the_entries),
      config(resolve(wanted, components)),
      clock(the_clock),
      trace(the_trace),
      probe(config.instrument),
      backend(
          components.backend->make(options_of(config.device, components.backend->options), clock)),
      spec(agreed_batches(config, components)),
      graph(build_graph(*components.model, spec.image, spec.classes)),
      stop_(std::move(stop)),
      feeder_options_(options_of(config.fake_location, components.feeder->options)),
      update_options_(options_of(config.variable_update, components.update->options)),
      optimizer_options_(options_of(optimizer_text(config), components.optimizer->options)) {
  if (std::int64_t{config.num_gpus} * neighbours() > backend->device_count()) {
    throw ConfigError(fmt::format("--num-gpus is {}, in {} processes of this machine; it has {}",
                                  config.num_gpus, neighbours(), backend->device_count()));
  }
  if (components.feeder->outside_reserve != nullptr) {
    const std::int64_t batches = components.feeder->outside_reserve(feeder_options_, spec);
    outside_reserve = static_cast<double>(batches);
  }
  const std::int32_t first_device =
      processes() == nullptr ? 0 : processes()->launch().local_rank * config.num_gpus;
  ranks.resize(static_cast<std::size_t>(config.num_gpus));
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) {
    ranks[static_cast<std::size_t>(rank)].device = backend->open(first_device + rank);
  }
  require_memory(memory_needs());
  models = make_models(abandon);
  if (components.servers != nullptr) components.servers->attach(stopping.get_token(), abandon);
  const RunExchange exchange{.config = config,
                             .backend = *backend,
                             .devices = devices(),
                             .processes = exchanges_inside() ? nullptr : processes(),
                             .clock = clock,
                             .probe = probe,
                             .stopping = stopping.get_token(),
                             .abandon = abandon};
  group = make_exchange(exchange);
  if (!exchanges_inside()) meeting = std::make_unique<ProcessMeeting>(exchange);
  const std::optional<Checkpoint> checkpoint = open_checkpoint();
  make_feeders();
  examples_per_epoch = extent.examples > 0 ? static_cast<double>(extent.examples) : kImageNetImages;
  learning_rates = learning_rate_plan(config, *components.model, examples_per_epoch);
  config.num_batches = resolve_steps(config, extent);
  config.num_epochs = 0;
  compile_ranks();
  for (std::int32_t rank = 0; rank < config.num_gpus; ++rank) make_rank(rank);
  if (checkpoint) restore(*checkpoint);
  note_unused_classes();
  note_unused_loss_scale();
  note_shared_cores();
  note_exchange();
}

/// Updates may have threads of their own, which end before the models that they read.
RunParts::~RunParts() {
  for (Rank& rank : ranks) rank.update.reset();
}

/// Among those of all processes.
std::int32_t RunParts::global_rank(std::int32_t rank) const noexcept {
  return processes() == nullptr ? rank : processes()->launch().rank * config.num_gpus + rank;
}

/// Processes of the run on this machine, this one among them.
std::int32_t RunParts::neighbours() const noexcept {
  return processes() == nullptr ? 1 : processes()->launch().local_size;
}

std::vector<Device*> RunParts::devices() const {
  std::vector<Device*> devices;
  for (const Rank& rank : ranks) devices.push_back(rank.device.get());
  return devices;
}

/// The host's memory for the rings of one process with `devices` devices.
std::vector<MemoryNeed> RunParts::ring_needs(const std::string& of, const BatchSpec& batches,
                                             std::string_view batch_flag, double devices) const {
  const auto batch = static_cast<double>(batches.bytes());
  const MemoryNeed::Factor images{batch_flag, static_cast<double>(batches.images)};
  std::vector<MemoryNeed> needs;
  if (!feeds_device_slots()) {
    needs.push_back({"slots of the host ring" + of,
                     batch * config.prefetch,
                     {images, {"--prefetch", static_cast<double>(config.prefetch)}}});
  }
  // A device that copies from any memory is made of the host's.
  if (ranks.front().device->takes_any_memory()) {
    needs.push_back({"slots of the devices' rings" + of,
                     devices * batch * config.device_slots,
                     {images, {"--device-slots", static_cast<double>(config.device_slots)}}});
    if (feeds_device_slots()) needs.push_back({"staging" + of, devices * batch, {images}});
  }
  return needs;
}

/// Of the host, for all processes of this machine. What an exchange or a library takes for itself
/// is not known here, and small beside these.
std::vector<MemoryNeed> RunParts::memory_needs() const {
  const double processes = neighbours(), devices = config.num_gpus;
  const MemoryNeed::Factor all_devices{"--num-gpus", devices};
  std::vector<MemoryNeed> needs = ring_needs("", spec, "--batch-size", devices);
  const auto add = [&needs](std::vector<MemoryNeed> more) {
    for (MemoryNeed& need : more) needs.push_back(std::move(need));
  };
  const bool own_batches = config.eval_batch_size > 0 && config.eval_batch_size != spec.images;
  const bool evaluates = config.eval || evaluates_while_training(config);
  if (evaluates) {  // by rank 0, whose training rings stay
    BatchSpec evaluated = spec;
    if (own_batches) evaluated.images = config.eval_batch_size;
    add(ring_needs(" of evaluation", evaluated, own_batches ? "--eval-batch-size" : "--batch-size",
                   1));
  }
  if (components.feeder->memory_needs != nullptr) {
    add(components.feeder->memory_needs(feeder_options_, spec));
  }
  if (components.backend->computes_on_host) {
    double values = 0;
    for (const ParameterSpec& parameter : graph.parameters()) {
      values += static_cast<double>(parameter.count());
    }
    const auto copies = static_cast<double>(2 + components.optimizer->slots);  // and gradients
    needs.push_back({"weights", devices * copies * sizeof(float) * values, {all_devices}});
    if (evaluates && own_batches) {
      needs.push_back({"weights of evaluation", 2 * sizeof(float) * values});
    }
  }
  if (config.num_epochs == 0) {
    const auto steps = static_cast<double>(config.num_batches);
    constexpr double kRecord = sizeof(StepLog::Step) + 8 * sizeof(double);  // and in the result
    needs.push_back({"records of steps",
                     steps * (kRecord + devices * sizeof(StepTimes)),
                     {all_devices, {"--num-batches", steps}}});
  }
  for (MemoryNeed& need : needs) need.bytes *= processes;
  return needs;
}

/// Null: the update does not ask for it.
std::unique_ptr<ModelStore> RunParts::make_models(const std::stop_token& abandon) {
  if (!components.update->reads_models) return nullptr;
  if (processes() == nullptr) {
    return std::make_unique<ThreadsModelStore>(devices(), clock, abandon);
  }
  return make_process_models({.processes = *processes(),
                              .devices = devices(),
                              .clock = clock,
                              .probe = probe,
                              .patience = model_patience(config, processes()->progress()),
                              .stopping = stopping.get_token(),
                              .abandon = abandon});
}

CheckpointInfo RunParts::checkpoint_info(std::int64_t step) const {
  return {.model = std::string(components.model->name),
          .optimizer = std::string(components.optimizer->name),
          .image = spec.image,
          .classes = spec.classes,
          .step = step,
          .seed = config.seed,
          .loss_scale = loss_scale()};
}

std::optional<LossScale> RunParts::loss_scale() const {
  const Rank& first = ranks.front();
  if (first.optimizer == nullptr) return std::nullopt;
  const Tensor scale = first.optimizer->loss_scale();
  if (scale.count == 0) return std::nullopt;
  return read_loss_scale(scale, *first.device);
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
  bool whole = true;
  for (Rank& rank : ranks) {
    if (config.eval) {
      checkpoint.restore(*rank.executable);
    } else {
      whole &= checkpoint.restore(*rank.executable, *rank.optimizer, *rank.update);
    }
    const Tensor scale = rank.optimizer->loss_scale();
    if (checkpoint.info().loss_scale && scale.count > 0) {
      write_loss_scale(*checkpoint.info().loss_scale, scale, *rank.device);
    }
    rank.executable->set_step(first_step);
    rank.replica->set_step(first_step);
  }
  const std::string path = checkpoint_path(config.train_dir, first_step).string();
  probe.note(fmt::format("goes on from '{}'", path));
  if (config.eval) return;
  if (!whole) {
    probe.note(fmt::format(
        "this run differs from one that never stopped: '{}' was saved by another update, and lacks "
        "what --variable-update {} carries from step to step",
        path, config.variable_update));
  }
  if (config.num_gpus > 1 && components.update->agreement != Agreement::identical) {
    probe.note(fmt::format(
        "this run differs from one that never stopped: with --variable-update {} the devices hold "
        "different weights, and all {} resume from those of the first, which a checkpoint keeps",
        config.variable_update, config.num_gpus));
  }
}

/// Rings and feeders: of the host for all ranks, or one for each device.
ExecutableSpec RunParts::executable_spec(const BatchSpec& batches, std::int32_t rank) const {
  return {.batch = batches,
          .precision = parse_precision(config.precision),
          .threads = config.compute_threads,
          .local_ranks = config.num_gpus * neighbours(),
          .seed = config.seed + static_cast<std::uint64_t>(global_rank(rank)),
          .loss_scale = loss_scale_of(config),
          .loss_scale_count_to = counted_steps_of_loss_scale(config),
          .cache_directory = config.cache_dir};
}

std::unique_ptr<Executable> RunParts::compile(const BatchSpec& batches, std::int32_t rank,
                                              bool reports) {
  CompileProgress progress(stderr, config.model);
  ExecutableSpec compilation = executable_spec(batches, rank);
  const bool shows = reports && (global_rank(rank) == 0 || processes() == nullptr);
  compilation.progress = [&](std::size_t done, std::size_t total) {
    if (stop_.stop_requested()) {
      throw Error(fmt::format("stopped while {} was compiled; what was found out so far is kept",
                              config.model));
    }
    if (shows) progress.update(done, total);
  };
  return backend->compile(graph, compilation, *ranks[static_cast<std::size_t>(rank)].device);
}

/// The first rank before the others: they find on disk what it learnt about its device. Those
/// compile at the same time, if they do not compete for the host's cores, and the second one
/// reports for all of them.
void RunParts::compile_ranks() {
  const auto compile_rank = [this](std::size_t rank) {
    ranks[rank].executable = compile(spec, static_cast<std::int32_t>(rank), rank < 2);
  };
  if (components.backend->computes_on_host) {
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

void RunParts::make_rank(std::int32_t index) {
  Rank& rank = ranks[static_cast<std::size_t>(index)];
  if (global_rank(index) == 0) initialise(*rank.executable, graph, config.seed);
  rank.optimizer =
      backend->make_optimizer({*components.optimizer, optimizer_options_, stored_weights(config)},
                              executable_spec(spec, index), *rank.device);
  rank.collective = group->join(exchanges_inside() ? index : global_rank(index));
  const auto hyper = [this](std::int64_t step) {
    Hyper terms = hyper_of(config);
    terms.learning_rate = learning_rate(learning_rates, step);
    terms.step = step;
    return terms;
  };
  rank.update =
      components.update->make({.collective = *rank.collective,
                               .optimizer = *rank.optimizer,
                               .reduction = parse_gradient_reduction(config.gradient_reduction),
                               .local_ranks = config.num_gpus,
                               .options = update_options_,
                               .exchange = overlap(rank),
                               .device = rank.device.get(),
                               .models = models.get(),
                               .probe = &probe,
                               .seed = config.seed,
                               .clock = &clock,
                               .servers = components.servers,
                               .hyper = hyper});
  refuse_partial_checkpoints(rank);
  const Replica::Parts parts{*rank.executable, *rank.optimizer, *rank.update,
                             [this, hyper](std::int64_t step) {
                               tell_step(step);
                               return hyper(step);
                             },
                             rank.collective->recordable() && rank.update->recordable(),
                             // A trace has its times already.
                             Marks(backend->marks(), nullptr, Work::staging, index)};
  const Phase phase = config.forward_only ? Phase::forward_only : Phase::train;
  rank.replica = std::make_unique<Replica>(*rank.ring, *rank.device, parts, phase, clock);
}

void RunParts::tell_step(std::int64_t step) const {
  RankProgress* const progress = processes() == nullptr ? nullptr : processes()->progress();
  if (progress != nullptr) progress->begin_step(step, clock.now());
}

/// By a thread on devices that are made of the host's cores: others have only begun what a step
/// tells of.
GradientExchange* RunParts::overlap(const Rank& rank) {
  Collective& collective = *rank.collective;
  const ParameterSet& set = rank.executable->parameters();
  if (config.forward_only || config.eval || collective.world().size == 1) return nullptr;
  if (components.backend->computes_on_host) {
    exchanges.push_back(std::make_unique<ThreadExchange>(collective, set, *rank.device, clock,
                                                         bucket_limits(config)));
  } else if (collective.overlaps()) {
    exchanges.push_back(std::make_unique<StreamExchange>(
        collective, set, *rank.device, clock, bucket_limits(config), rank.ring->slots()));
  } else {
    return nullptr;
  }
  return exchanges.back().get();
}

void RunParts::refuse_partial_checkpoints(const Rank& rank) const {
  if (config.train_dir.empty() || rank.update->rank_0_knows_all()) return;
  const bool carries = rank.update->kept(rank.executable->parameters()).carried.count > 0;
  if (components.optimizer->slots == 0 && !carries) return;
  throw ConfigError(fmt::format(
      "--train-dir is '{}', and with --variable-update {} rank 0 would save a part only of what "
      "{} remembers; leave --train-dir out, or use placement=first",
      config.train_dir, config.variable_update,
      carries ? "the update" : fmt::format("the optimizer {}", components.optimizer->name)));
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
  if (config.fp16_enable_auto_loss_scale && !loss_scale()) {
    probe.note(
        fmt::format("--fp16-enable-auto-loss-scale is ignored: in {} the device '{}' trains "
                    "without a loss scale",
                    config.precision, components.backend->name));
  }
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

/// How gradients move; and what a device that computes none leaves unsaid.
void RunParts::note_exchange() {
  const bool computes = !ranks.front().executable->parameters().parameters.empty();
  if (computes) {
    const std::string how = group->how();
    if (all_devices(config) > 1 && !how.empty()) probe.note("ranks exchange through " + how);
  } else if (config.eval || config.forward_only || config.print_training_accuracy ||
             evaluates_while_training(config)) {
    probe.note(fmt::format("accuracies are printed as 0: the device '{}' computes nothing",
                           components.backend->name));
  }
}

ExchangeTimes RunParts::exchange_times() const {
  ExchangeTimes sum;
  for (const auto& exchange : exchanges) sum += exchange->times();
  return sum;
}

}  // namespace penstock
