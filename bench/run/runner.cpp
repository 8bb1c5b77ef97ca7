// SPDX-License-Identifier: Apache-2.0
#include "bench/run/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "bench/config/due_points.h"
#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "bench/record/exit_code.h"
#include "bench/record/machine.h"
#include "bench/run/evaluator.h"
#include "bench/run/page_cache.h"
#include "bench/run/run_parts.h"
#include "bench/run/run_session.h"
#include "dataflow/error.h"
#include "trainer/cluster/processes.h"

namespace penstock {
namespace {

/// A result without measurements, for the exception being handled.
RunResult failed_result(const RunConfig& config) {
  RunResult result;
  result.config = config;
  result.unit = sample_unit(config);
  result.status = Status::failed;
  result.started = utc_now();
  result.exit_code = exit_code_of(std::current_exception());
  try {
    throw;
  } catch (const std::exception& error) {
    result.reason = failure_text(error);
  }
  return result;
}

/// States the interpreter of a loader.
RunConfig with_python(RunConfig config, const FeederEntry& feeder) {
  if (options_of(config.fake_location, feeder.options).given("python")) return config;
  ComponentText text = parse_component(config.fake_location);
  text.values.emplace_back("python", default_python());
  config.fake_location = component_text(text);
  return config;
}

/// Cores available to one of `processes` on this machine: its bound cores, or a share of all.
std::int32_t cores_of_one(std::int32_t processes) {
  return is_bound_to_processors() ? usable_cores() : std::max(1, usable_cores() / processes);
}

/// The model of batches that are no images: the stand-in for the user's own, unless it takes any.
void adopt_any_model(RunConfig& config, Runner::Components& components,
                     const FeederBatches& batches) {
  if (components.model->takes_any) return;
  const std::string stated = std::exchange(config.model, std::string(kAnyModel));
  components.model = find_components(config).model;
  if (stated == RunConfig().model) return;
  throw ConfigError(
      "--model {} trains on images, and the loader yields {} samples a batch: {}; leave --model "
      "out, or state --model null to measure the loader alone",
      stated, batches.images, batches.outline);
}

/// Images that the default model cannot take: on an emulated device the stand-in replaces it, too.
void adopt_any_for_small(RunConfig& config, Runner::Components& components,
                         const ImageShape& image) {
  if (config.model != RunConfig().model) return;
  const BackendEntry* const backend = entry_of(backend_table(), config.device);
  if (backend == nullptr || !backend->emulates) return;
  const ModelEntry& model = find_entry(model_table(), config.model);
  if (std::min(image.height, image.width) >= model.min_side) return;
  config.model = kAnyModel;
  components.model = find_components(config).model;
}

/// Adopts a size that the feeder's batches have.
void adopt(std::int32_t& size, std::int32_t yielded, const char* flag) {
  if (size == 0) size = yielded;
  if (size == yielded) return;
  throw ConfigError("{} is {}, and the loader's batches have {}; leave {} out", flag, size, yielded,
                    flag);
}

/// For a feeder whose options may state batches that hold no images.
RunConfig take_stated_batches(RunConfig config, Runner::Components& components) {
  const FeederEntry& feeder = *components.feeder;
  if (trains_images(config)) return config;
  BatchSpec spec;
  feeder.shape_batches(options_of(config.fake_location, feeder.options), spec);
  adopt(config.batch_size, spec.images, "--batch-size");
  adopt_any_model(config, components, {.images = spec.images, .outline = "arrays", .options = {}});
  return config;
}

/// `runs`: a run of these components follows.
RunConfig ask_for_batches(RunConfig config, Runner::Components& components, bool runs,
                          const std::stop_token& stop) {
  const FeederEntry& feeder = *components.feeder;
  if (feeder.describe_batches == nullptr) return take_stated_batches(std::move(config), components);
  if (follows_loop(config, feeder)) config = with_python(std::move(config), feeder);
  const Options options = options_of(config.fake_location, feeder.options);
  DataPlan data;
  data.stop = stop;
  const bool one_each = config.loader_per == "device";
  place_feeder(data, config, components.processes, one_each, 0);
  const std::int32_t feeders = !runs ? 0 : one_each ? config.num_gpus : 1;
  const std::optional<FeederBatches> found = feeder.describe_batches(options, data, feeders);
  if (!found) return config;
  const FeederBatches& batches = *found;
  components.started = batches.started;
  ComponentText text = parse_component(config.fake_location);
  adopt(config.batch_size, batches.images, "--batch-size");
  if (!batches.outline.empty()) {
    adopt_any_model(config, components, batches);
  } else {
    adopt_any_for_small(config, components, batches.image);
    const bool square = batches.image.height == batches.image.width;
    if (square) adopt(config.image_size, batches.image.height, "--image-size");
  }
  for (const auto& option : batches.options) {
    if (!options.given(option.first)) text.values.push_back(option);
  }
  config.fake_location = component_text(text);
  return config;
}

}  // namespace

Options options_of(std::string_view text, std::span<const OptionSpec> specs) {
  const ComponentText parts = parse_component(text);
  return Options(parts.name, specs, parts);
}

RunConfig adopt_batches(RunConfig config, Runner::Components& components,
                        const std::stop_token& stop) {
  return ask_for_batches(std::move(config), components, true, stop);
}

RunConfig state_batches(RunConfig config, Runner::Components components,
                        const std::stop_token& stop) {
  return ask_for_batches(std::move(config), components, false, stop);
}

void state_batches(std::span<RunConfig> rows, const std::stop_token& stop) {
  const RunConfig* found = nullptr;
  for (RunConfig& row : rows) {
    const FeederEntry* const feeder = entry_of(feeder_table(), row.fake_location);
    if (feeder == nullptr || (feeder->describe_batches == nullptr && trains_images(row))) continue;
    row = state_batches(std::move(row), Runner::Components{.feeder = feeder}, stop);
    found = &row;
  }
  if (found == nullptr) return;
  for (RunConfig& row : rows) {
    if (row.batch_size == 0) row.batch_size = found->batch_size;
    if (row.image_size == 0) row.image_size = found->image_size;
  }
}

RunConfig resolve(RunConfig config, const Runner::Components& components) {
  if (config.batch_size == 0) config.batch_size = components.model->batch;
  const ImageShape& image = components.model->image;
  if (config.image_size == 0 && image.height == image.width) config.image_size = image.height;
  if (config.classes == 0) config.classes = components.model->classes;
  config.gradient_reduction = resolve_gradient_reduction(config);
  if (follows_loop(config, *components.feeder)) {
    config = with_loop(std::move(config), *components.backend);
  } else {
    config.loop.clear();
  }
  if (components.update->ranks == RankKind::processes && config.num_gpus != 1) {
    throw ConfigError(
        "--variable-update {} trains on one device in each process, and --num-gpus is "
        "{}; start more processes with mpirun, or use replicated",
        config.variable_update, config.num_gpus);
  }
  const cluster::Processes* const processes = components.processes;
  config.num_processes = processes == nullptr ? 1 : processes->launch().size;
  const std::int32_t cores =
      cores_of_one(processes == nullptr ? 1 : processes->launch().local_size);
  if (config.compute_threads == 0) config.compute_threads = std::max(1, cores / config.num_gpus);
  if (config.feeder_threads == 0) {
    const bool shared = components.backend->computes_on_host;
    config.feeder_threads = std::max(1, shared ? cores / 2 : cores);
  }
  if (components.feeder->reads_files && config.data_dir.empty()) config.data_dir = "data/train";
  if (config.cache_dir.empty()) config.cache_dir = default_cache_dir();
  return config;
}

Runner::Components find_components(const RunConfig& config) {
  const auto name = [](const std::string& text) { return parse_component(text).name; };
  return {&find_entry(feeder_table(), name(config.fake_location)),
          &find_entry(model_table(), name(config.model)),
          &find_entry(backend_table(), name(config.device)),
          &find_entry(update_table(), name(config.variable_update)),
          &find_entry(optimizer_table(), name(config.optimizer)),
          nullptr,
          nullptr,
          {}};
}

/// The parts, and the stop source that lets ranks leave an exchange.
class Runner::Wiring {
 public:
  Wiring(const RunConfig& config, Clock& clock, const Components& components, Trace* trace,
         std::stop_token stop)
      : parts(config, clock, components, std::move(stop), abandon.get_token(), trace) {
    if (parts.setup.config.eval &&
        parse_page_cache(parts.setup.config.page_cache) != PageCache::as_is) {
      throw ConfigError("--page-cache is " + parts.setup.config.page_cache +
                        ", and --eval reads another set; leave one of them out");
    }
    const bool evaluates = !evaluation_points(parts.setup.config, parts.steps_per_epoch()).empty();
    if (!parts.setup.is_first()) return;
    if (parts.setup.config.eval || evaluates) evaluator.emplace(parts);
    if (evaluates && all_devices(parts.setup.config) > 1 &&
        components.update->agreement != Agreement::identical) {
      parts.setup.probe.note(
          fmt::format("evaluations show the first device's weights: with --variable-update {} the "
                      "devices hold different ones",
                      parts.setup.config.variable_update));
    }
    if (parts.setup.config.eval) {  // the header then shows the evaluation's numbers
      parts.setup.config.num_batches = evaluator->steps();
      parts.schedule.examples_per_epoch = evaluator->examples();
    }
  }

  std::stop_source abandon;
  RunParts parts;
  std::optional<Evaluator> evaluator;
};

Runner::Runner(const RunConfig& config, Clock& clock)
    : Runner(config, clock, find_components(config)) {}
Runner::Runner(const RunConfig& config, Clock& clock, const Components& components, Trace* trace,
               std::stop_token stop)
    : wiring_(std::make_unique<Wiring>(config, clock, components, trace, std::move(stop))) {}
Runner::~Runner() = default;

const RunConfig& Runner::config() const noexcept { return wiring_->parts.setup.config; }

double Runner::examples_per_epoch() const noexcept {
  return wiring_->parts.schedule.examples_per_epoch;
}

std::vector<QueueGauge> Runner::queues() const {
  std::vector<QueueGauge> gauges;
  for (auto& [name, ring] : wiring_->parts.rings()) {
    const RingStats stats = ring->monitor().stats();
    gauges.push_back({.name = std::move(name),
                      .slots = static_cast<std::int32_t>(ring->slots()),
                      .filled = stats.filled_slots,
                      .producer_wait_s = to_seconds(stats.producer_wait),
                      .consumer_wait_s = to_seconds(stats.consumer_wait)});
  }
  return gauges;
}

RunResult Runner::run(RunListener& listener, std::stop_token stop) {
  RunParts& parts = wiring_->parts;
  Evaluator* const evaluator = wiring_->evaluator ? &*wiring_->evaluator : nullptr;
  PageCacheOfRun page_cache(
      parse_page_cache(parts.setup.config.page_cache),
      parts.feed.hosts.empty() ? nullptr : parts.feed.hosts.front().feeder->files());
  try {
    page_cache.prepare(stop);
  } catch (const Error&) {
    return failed_result(parts.setup.config);
  }
  RunResult result = run_session(parts, evaluator, listener, wiring_->abandon, std::move(stop));
  page_cache.report(result, parts.feed.extent.share);
  return result;
}

}  // namespace penstock
