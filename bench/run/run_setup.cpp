// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_setup.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "bench/run/observe/progress_line.h"
#include "bench/run/processes/run_exchange.h"
#include "bench/run/step_reporter.h"
#include "dataflow/error.h"
#include "dataflow/machine/memory_pages.h"

namespace penstock {
namespace {

/// The batch spec of the model, adjusted to the feeder.
BatchSpec agreed_batches(const RunConfig& config, const Runner::Components& components) {
  BatchSpec batches = batch_spec(config, *components.model);
  const FeederEntry& feeder = *components.feeder;
  const bool wants_planar = config.data_format == "NCHW";
  batches.planar = wants_planar && feeder.takes_layout;
  if (feeder.shape_batches != nullptr) {
    feeder.shape_batches(options_of(config.fake_location, feeder.options), batches);
  }
  if (wants_planar && !batches.planar) {
    throw ConfigError(
        "--data-format is NCHW, but --fake-location {} supplies NHWC; leave "
        "--data-format out, or choose another feeder",
        config.fake_location);
  }
  if (batches.opaque && components.model->computes && !components.backend->emulates) {
    throw ConfigError(
        "--device {} computes models of images, and the loader's batches are no images; state the "
        "time of your model's step, such as --device emulated:step_time=20ms, or --model null, "
        "which only copies them to the device",
        config.device);
  }
  return batches;
}

/// Host memory for the rings of one process with `devices` devices.
std::vector<MemoryNeed> ring_needs(const RunSetup& setup, bool devices_are_host,
                                   const std::string& of, const BatchSpec& batches,
                                   std::string_view batch_flag, double devices) {
  const RunConfig& config = setup.config;
  const auto batch = static_cast<double>(batches.bytes());
  const MemoryNeed::Factor images{batch_flag, static_cast<double>(batches.images)};
  std::vector<MemoryNeed> needs;
  if (!setup.feeds_device_slots()) {
    needs.push_back({"slots of the host ring" + of,
                     batch * config.prefetch * setup.host_feeders(),
                     {images, {"--prefetch", static_cast<double>(config.prefetch)}}});
  }
  if (devices_are_host) {
    needs.push_back({"slots of the devices' rings" + of,
                     devices * batch * config.device_slots,
                     {images, {"--device-slots", static_cast<double>(config.device_slots)}}});
    if (setup.feeds_device_slots()) needs.push_back({"staging" + of, devices * batch, {images}});
  }
  return needs;
}

}  // namespace

Nanoseconds DeviceClock::sleep_exactly_until(Time deadline, Nanoseconds spin) {
  constexpr Nanoseconds kShort = std::chrono::milliseconds(100);
  if (deadline - now() > 2 * kShort) {
    const std::stop_token ended = ended_.get_token();
    clock_.sleep_until(deadline - kShort, ended);
    if (ended.stop_requested()) return {};
  }
  return clock_.sleep_exactly_until(deadline, spin);
}

RunSetup::RunSetup(const RunConfig& typed, Clock& the_clock, const Runner::Components& the_entries,
                   std::stop_token the_stop, Trace* the_trace)
    : components(the_entries),
      config(resolve(typed, components)),
      clock(the_clock),
      device_clock(the_clock),
      trace(the_trace),
      probe(config.instrument),
      backend(components.backend->make(options_of(config.device, components.backend->options),
                                       device_clock)),
      spec(agreed_batches(config, components)),
      graph(build_graph(*components.model, spec.image, spec.classes)),
      stop(std::move(the_stop)),
      feeder_options(options_of(config.fake_location, components.feeder->options)) {
  config.data_format = spec.planar ? "NCHW" : "NHWC";
}

void place_feeder(DataPlan& data, const RunConfig& config, const cluster::Processes* processes,
                  bool each_device, std::int32_t device) {
  const cluster::Launch launch = processes == nullptr ? cluster::Launch{} : processes->launch();
  const std::int32_t feeders = each_device ? config.num_gpus : 1;
  data.rank = launch.rank * feeders + device;
  data.ranks = launch.size * feeders;
  data.local_rank = launch.local_rank * feeders + device;
  data.local_ranks = launch.local_size * feeders;
}

bool RunSetup::feeds_each_device() const {
  return config.loader_per == "device" && follows_loop(config, *components.feeder);
}

/// The rank's number among the ranks of all processes.
std::int32_t RunSetup::global_rank(std::int32_t rank) const noexcept {
  return processes() == nullptr ? rank : processes()->launch().rank * config.num_gpus + rank;
}

/// Processes of the run on this machine, with this one.
std::int32_t RunSetup::neighbours() const noexcept {
  return processes() == nullptr ? 1 : processes()->launch().local_size;
}

std::size_t RunSetup::ranks_together() const {
  if (config.forward_only) return 1;
  const UpdateEntry& update = *components.update;
  const bool served = components.servers != nullptr;
  if (update.steps_apart == nullptr ||
      !update.steps_apart(options_of(config.variable_update, update.options), served)) {
    return 0;
  }
  return served ? static_cast<std::size_t>(config.num_gpus) : 1;
}

bool RunSetup::weights_on_host() const {
  if (components.backend->computes_on_host) return false;
  if (components.servers != nullptr) return components.backend->exchanges_gradients;
  const UpdateEntry& update = *components.update;
  return update.in_host_memory != nullptr &&
         update.in_host_memory(options_of(config.variable_update, update.options));
}

Order RunSetup::order() const { return config.order == "strict" ? Order::strict : Order::relaxed; }

DataPlan RunSetup::data_plan(std::int32_t rank, std::int64_t first_step) const {
  DataPlan data{.directory = config.data_dir,
                .order = order(),
                .seed = config.seed,
                .first_sample = 0,
                .classes = spec.classes};
  place_feeder(data, config, processes(), feeds_device_slots() || feeds_each_device(), rank);
  const std::int64_t taken_a_step = spec.images * (all_devices(config) / data.ranks);
  data.first_sample = static_cast<std::uint64_t>(first_step * taken_a_step);
  return data;
}

std::unique_ptr<Feeder> RunSetup::make_feeder(const BatchSpec& batches, DataPlan data,
                                              Device& device, std::int32_t slots, Probe& counters) {
  data.stop = stop;
  return components.feeder->make(FeederContext{
      .spec = batches,
      .device = device,
      .clock = clock,
      .options = feeder_options,
      .data = std::move(data),
      .probe = counters,
      .marks = marks(Work::feeding),
      .on_bad_sample = parse_bad_sample_policy(config.on_bad_sample),
      .timeout = patience_of(config),
      .launch = std::chrono::round<Nanoseconds>(
          std::chrono::duration<double, std::milli>(parse_loop(config.loop).launch_ms)),
      .threads = config.feeder_threads,
      .slots = slots,
      .seed = config.seed,
      .started = components.started,
  });
}

/// The options for compiling `batches` on the device of a rank of this process.
ExecutableSpec RunSetup::executable_spec(const BatchSpec& batches, std::int32_t rank) const {
  return {.batch = batches,
          .p100_img_per_s = components.model->p100_img_per_s,
          .precision = parse_precision(config.precision),
          .threads = config.compute_threads,
          .local_ranks = config.num_gpus * neighbours(),
          .seed = config.seed + static_cast<std::uint64_t>(global_rank(rank)),
          .loss_scale = loss_scale_of(config),
          .loss_scale_count_to = counted_steps_of_loss_scale(config),
          .weights_on_host = weights_on_host(),
          .cache_directory = config.cache_dir};
}

std::unique_ptr<Executable> RunSetup::compile(const BatchSpec& batches, std::int32_t rank,
                                              Device& device, bool reports) {
  JobLine line(stderr);
  ExecutableSpec compilation = executable_spec(batches, rank);
  const bool shows = reports && (global_rank(rank) == 0 || processes() == nullptr);
  compilation.progress = [&](std::size_t done, std::size_t total) {
    if (stop.stop_requested()) {
      throw Error("stopped while {} was compiled; the results so far are kept", config.model);
    }
    if (shows) line.update("compiling " + config.model, done, total, "operators");
  };
  return backend->compile(graph, compilation, device);
}

Marks RunSetup::marks(Work work, std::int32_t rank) const {
  return {backend->marks(), trace != nullptr ? &trace->spans() : nullptr, work, rank};
}

std::vector<MemoryNeed> memory_needs(const RunSetup& setup, bool devices_are_host) {
  const RunConfig& config = setup.config;
  const Runner::Components& components = setup.components;
  const BatchSpec& spec = setup.spec;
  const double processes = setup.neighbours(), devices = config.num_gpus;
  const MemoryNeed::Factor all_devices{"--num-gpus", devices};
  double values = 0;  // of all parameters
  for (const ParameterSpec& parameter : setup.graph.parameters()) {
    values += static_cast<double>(parameter.count());
  }
  std::vector<MemoryNeed> needs =
      ring_needs(setup, devices_are_host, "", spec, "--batch-size", devices);
  const auto add = [&needs](std::vector<MemoryNeed> more) {
    for (MemoryNeed& need : more) needs.push_back(std::move(need));
  };
  if (components.feeder->memory_needs != nullptr) {
    add(components.feeder->memory_needs(setup.feeder_options, spec));
  }
  if (components.backend->computes_on_host || setup.weights_on_host()) {
    // Also gradients; the memory of an emulated device is the host's.
    const auto copies =
        static_cast<double>((components.backend->emulates ? 3 : 2) + components.optimizer->slots);
    needs.push_back({"weights", devices * copies * sizeof(float) * values, {all_devices}});
  }
  if (config.num_epochs == 0) {
    const auto steps = static_cast<double>(config.num_batches);
    constexpr double kRecord = sizeof(StepLog::Step) + 8 * sizeof(double);  // log and result
    needs.push_back({"records of steps",
                     steps * (kRecord + 2 * devices * sizeof(StepTimes)),
                     {all_devices, {"--num-batches", steps}}});
  }
  for (MemoryNeed& need : needs) need.bytes *= processes;
  // The first process evaluates; its training rings stay.
  if (!setup.is_first() || !(config.eval || evaluates_while_training(config))) return needs;
  const bool own_batches = config.eval_batch_size > 0 && config.eval_batch_size != spec.images;
  BatchSpec evaluated = spec;
  if (own_batches) evaluated.images = config.eval_batch_size;
  add(ring_needs(setup, devices_are_host, " of evaluation", evaluated,
                 own_batches ? "--eval-batch-size" : "--batch-size", 1));
  if (own_batches && components.backend->computes_on_host) {
    needs.push_back({"weights of evaluation", 2 * sizeof(float) * values});
  }
  return needs;
}

SlotMemory::SlotMemory(Device& device, const RunConfig& config, Probe& probe)
    : device_(device), config_(config), probe_(probe) {
  if (config.pinned_memory || !device.takes_any_memory()) return;
  probe.note(
      "--pinned-memory has no effect: this device copies from any memory alike; emulated devices "
      "differ with pageable_gb_per_s");
}

void SlotMemory::say_once(const char* sentence) {
  if (!std::exchange(said_, true)) probe_.note(sentence);
}

Buffer SlotMemory::allocate(std::size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::pinned && !config_.pinned_memory) kind = MemoryKind::host;
  if (config_.huge_pages == "transparent") return device_.allocate(bytes, kind);
  if (kind != MemoryKind::host && !device_.takes_any_memory()) {
    say_once("--huge-pages has no effect: slots that this device copies from are its driver's");
    return device_.allocate(bytes, kind);
  }
  Buffer buffer = allocate_pages(
      bytes, config_.huge_pages == "explicit" ? PageChoice::explicit_huge : PageChoice::small);
  if (!buffer.bytes().empty()) return buffer;
  say_once(
      "--huge-pages explicit: the machine has not enough huge pages set apart (vm.nr_hugepages); "
      "the slots have transparent ones");
  return device_.allocate(bytes, kind);
}

void add_slot_map(RunResult& result, const BatchRing& ring) {
  double bytes = 0, huge = 0;
  std::set<std::string> nodes;
  for (std::size_t slot = 0; slot < ring.slots(); ++slot) {
    const std::span<std::byte> memory = ring.memory(slot);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    std::ifstream smaps("/proc/self/smaps");
    bytes += static_cast<double>(memory.size());
    huge += static_cast<double>(huge_bytes(smaps, begin, begin + memory.size()));
    const std::int32_t node = node_of(memory);
    if (node >= 0) result.facts[fmt::format("slot_{}_node", slot)] = node;
    nodes.insert(node < 0 ? "unknown" : fmt::format("{}", node));
  }
  const double mib = bytes / (1 << 20), percent = 100 * huge / bytes;
  result.facts["slots_mib"] = mib;
  result.facts["slots_huge_page_percent"] = percent;
  result.notes.push_back(fmt::format(
      "slots: {} of {:.1f} MiB, on NUMA node{} {}, {:.0f} % in huge pages (--huge-pages {})",
      ring.slots(), mib / static_cast<double>(ring.slots()), nodes.size() == 1 ? "" : "s",
      fmt::join(nodes, " and "), percent, result.config.huge_pages));
}

}  // namespace penstock
