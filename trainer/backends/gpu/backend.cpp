// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/gpu/builder.h"
#include "trainer/backends/gpu/group.h"
#include "trainer/backends/gpu/library.h"
#include "trainer/collectives/staged.h"
#include "trainer/wire_format.h"

namespace penstock::gpu {
namespace {

/// The rest of the memory is for rings of batches, streams and the libraries' own allocations.
constexpr double kShareOfMemory = 0.92;
constexpr Nanoseconds kWatchPeriod = std::chrono::seconds(1);

std::int32_t count_of(const Options& options, std::string_view name, std::int64_t most) {
  const std::int64_t value = options.integer(name);
  if (value < 1 || value > most) {
    throw ConfigError("gpu:{} is {}; expected a number from 1 to {}", name, value, most);
  }
  return static_cast<std::int32_t>(value);
}

FormMode mode_of(const Options& options, std::string_view name) {
  const std::string& text = options.text(name);
  if (text == "auto") return FormMode::automatic;
  if (text == "on") return FormMode::on;
  if (text == "off") return FormMode::off;
  throw ConfigError("gpu:{} is '{}'; expected auto, on or off", name, text);
}

/// In bytes; 0: automatic.
std::size_t workspace_of(const Options& options) {
  if (options.text("workspace_mib") == "auto") return 0;
  return static_cast<std::size_t>(count_of(options, "workspace_mib", 1 << 20)) << 20;
}

}  // namespace

GpuBackend::GpuBackend(std::shared_ptr<DriverLibrary> library, const Options& options,
                       const NvmlFunctions* nvml)
    : library_(std::move(library)),
      gpus_(library_->device_count()),
      replicas_(count_of(options, "replicas", kMaxRanks)),
      record_(options.flag("record")),
      exchange_(parse_exchange(options.text("exchange"))),
      nccl_timeout_(options.duration("nccl_timeout")),
      rules_{.deterministic = options.flag("deterministic"),
             .reduced_precision = options.flag("reduced_precision"),
             .workspace_limit = workspace_of(options),
             .autotune = options.flag("autotune"),
             .record = record_},
      forms_{.fused = mode_of(options, "fused"), .stem_blocks = mode_of(options, "stem_blocks")},
      watch_(nvml != nullptr ? std::make_unique<GpuWatch>(*nvml) : nullptr) {}

/// Distributes ranks over the GPUs in turn, so that a few ranks get one GPU each.
std::unique_ptr<Device> GpuBackend::open(std::int32_t ordinal) {
  const std::int32_t gpu = ordinal % gpus_;
  auto device = std::make_unique<GpuDevice>(library_->open(gpu), record_);
  gpu_of_[device.get()] = gpu;
  compilers_.try_emplace(gpu);
  const DeviceFacts& of = device->driver().facts();
  if (watch_ && ordinal < gpus_) {  // each GPU once
    watch_->add(gpu, of.pci_bus);
    if (!sampler_) {
      sampler_.emplace([watch = watch_.get()](Time now) { watch->sample(now); }, kWatchPeriod);
    }
  }
  facts_["multiprocessors"] = of.multiprocessors;
  facts_["memory_gib"] = static_cast<double>(of.memory_bytes) / (std::size_t{1} << 30);
  return device;
}

std::unique_ptr<Executable> GpuBackend::compile(const Graph& graph, const ExecutableSpec& spec,
                                                Device& device) {
  auto& on = static_cast<GpuDevice&>(device);
  Gpu& gpu = compilers_.at(gpu_of_.at(&device));
  const std::lock_guard compiling(gpu.compiling);
  // Read the free memory before the first replica takes its share.
  if (gpu.budget == 0) {
    const double free = kShareOfMemory * static_cast<double>(on.driver().free_bytes());
    const std::int32_t ranks = std::max(spec.local_ranks, 1);
    gpu.budget = static_cast<std::size_t>(free / ((ranks + gpus_ - 1) / gpus_));
  }
  if (gpu.book == nullptr) {
    gpu.book = std::make_unique<PlanBook>(on.driver().facts(), spec.cache_directory);
  }
  PlanRules rules = rules_;
  rules.allow_tf32 = spec.precision == Precision::tf32;
  auto executable =
      std::make_unique<GpuExecutable>(graph, spec, on, rules, forms_, *gpu.book, gpu.budget);
  const std::lock_guard lock(facts_mutex_);
  facts_["activation_mib"] += static_cast<double>(executable->activation_bytes()) / (1 << 20);
  facts_["parameter_mib"] += static_cast<double>(executable->parameter_bytes()) / (1 << 20);
  facts_["fused_operators"] = static_cast<double>(executable->fused_count());
  facts_["operations_per_step"] = static_cast<double>(executable->operation_count());
  const std::string note = executable->workspace_note();
  const bool is_new = std::ranges::find(notes_, note) == notes_.end();
  if (!note.empty() && is_new) notes_.push_back(note);  // once for all ranks
  return executable;
}

std::unique_ptr<Optimizer> GpuBackend::make_optimizer(const OptimizerChoice& choice,
                                                      const ExecutableSpec& spec, Device& device) {
  return make_gpu_optimizer(choice, finite_rules(spec), static_cast<GpuDevice&>(device));
}

ExchangeChoice GpuBackend::choose_exchange(std::span<Device* const> devices,
                                           const GroupSpec& spec) const {
  const Exchange requested = requested_exchange(exchange_, spec.exchange);
  std::vector<std::int32_t> gpus;
  std::vector<Driver*> drivers;
  std::vector<std::string> buses;
  for (Device* const device : devices) {
    gpus.push_back(gpu_of_.at(device));
    drivers.push_back(&static_cast<GpuDevice*>(device)->driver());
    buses.push_back(drivers.back()->facts().pci_bus);
  }
  return spec.processes != nullptr
             ? choose_process_exchange(requested, buses, *spec.processes, *library_)
             : gpu::choose_exchange(requested, gpus, drivers, *library_);
}

std::unique_ptr<CollectiveGroup> GpuBackend::make_group(std::span<Device* const> devices,
                                                        const GroupSpec& spec, Clock& clock,
                                                        std::stop_token stop) {
  const ExchangeChoice choice = choose_exchange(devices, spec);
  if (spec.processes != nullptr || devices.size() > 1) {
    const WireFormat wire = spec.exchange.wire;
    notes_.push_back(wire == WireFormat::f32
                         ? choice.note
                         : fmt::format("{}; gradients travel as {}", choice.note, to_string(wire)));
  }
  switch (choice.exchange) {
    case Exchange::nccl:
      return make_nccl_group(devices, spec, choice.id, clock, std::move(stop));
    case Exchange::host:
      return std::make_unique<collectives::StagedGroup>(
          devices, spec.processes != nullptr ? spec.processes->first : 0,
          Backend::make_group(devices, spec, clock, std::move(stop)));
    default:
      return std::make_unique<DeviceGroup>(devices, spec.exchange.wire, clock, std::move(stop));
  }
}

std::unique_ptr<CollectiveGroup> GpuBackend::make_nccl_group(std::span<Device* const> devices,
                                                             const GroupSpec& spec,
                                                             const CommunicatorId& id, Clock& clock,
                                                             std::stop_token stop) {
  std::vector<std::int32_t> gpus;
  for (Device* const device : devices) gpus.push_back(gpu_of_.at(device));
  const ProcessRanks ranks = spec.processes != nullptr
                                 ? *spec.processes
                                 : ProcessRanks{.size = static_cast<std::int32_t>(devices.size())};
  return std::make_unique<NcclGroup>(
      devices,
      NcclGroup::Rules{.first_rank = ranks.first,
                       .ranks = ranks.size,
                       .timeout = nccl_timeout_,
                       .wire = spec.exchange.wire},
      [library = library_, id, gpus, first = ranks.first](const CommunicatorPlace& place) {
        return library->make_communicator(id, place,
                                          gpus[static_cast<std::size_t>(place.rank - first)]);
      },
      clock, std::move(stop));
}

}  // namespace penstock::gpu

namespace penstock {

extern constinit const BackendEntry gpu_backend{
    .name = "gpu",
    .summary = "trains on GPUs with cuDNN, in fp16, bf16, tf32 or fp32",
    .options = gpu::kOptions,
    .preferred = true,
    .exchanges_gradients = true,
    .make = [](const Options& options, Clock&) -> std::unique_ptr<Backend> {
      // The library stays open until the program ends, so this pointer needs no deleter.
      const std::shared_ptr<gpu::DriverLibrary> library(&gpu::driver_library(), [](auto*) {});
      return std::make_unique<gpu::GpuBackend>(library, options, gpu::nvml_functions());
    },
};

}  // namespace penstock
