// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/executable.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

Tensor tensor(const Buffer& arena, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return {};
  return {arena.bytes().data() + offset, bytes / sizeof(float), DType::f32};
}

/// Every convolution's output is kept from forward to backward: no plan needs less.
std::size_t least_bytes(const Graph& graph, const ExecutableSpec& spec) {
  const std::size_t element = spec.precision == Precision::f32 ? 4 : 2;
  std::size_t sum = 0;
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Conv2d>(node.op)) sum += node.shape.elements();
  }
  return sum * element * static_cast<std::size_t>(spec.batch.images);
}

std::string gib(std::size_t bytes) {
  const double value = static_cast<double>(bytes) / (1 << 30);
  return std::to_string(std::round(value * 10) / 10)
             .substr(0, std::to_string(value).find('.') + 2) +
         " GiB";
}

}  // namespace

CpuExecutable::CpuExecutable(Graph graph, const ExecutableSpec& spec, Device& device,
                             std::size_t memory_budget)
    : graph_(std::move(graph)),
      spec_(spec),
      device_(device),
      engine_(dnnl::engine::kind::cpu, 0),
      layouts_(make_layouts(graph_)) {
  if (graph_.nodes().empty()) return;
  constexpr std::int32_t kTrialImages = 8;
  if (least_bytes(graph_, spec) > memory_budget && spec.batch.images > kTrialImages) {
    ExecutableSpec trial = spec;  // building the real one could take forever
    trial.batch.images = kTrialImages;
    trial.progress = {};
    const auto schedule = build(Phase::train, trial);
    refuse_if_too_large(schedule->planned_bytes(), kTrialImages, memory_budget);
  }
  auto schedule = build(Phase::train, spec_);
  refuse_if_too_large(schedule->planned_bytes(), spec_.batch.images, memory_budget);
  make_arenas();
  schedules_[static_cast<std::size_t>(Phase::train)] = std::move(schedule);
  activations_ = device_.allocate(
      schedules_[static_cast<std::size_t>(Phase::train)]->planned_bytes(), MemoryKind::device);
  bind_all();
}

std::unique_ptr<Schedule> CpuExecutable::build(Phase phase, const ExecutableSpec& spec) {
  const Team team(spec.threads);
  auto schedule = std::make_unique<Schedule>(engine_);
  try {
    Builder(graph_, spec, engine_, phase, layouts_, *schedule).build();
  } catch (const dnnl::error& error) {
    const std::string what = "oneDNN cannot compile the model in " +
                             std::string(to_string(spec.precision)) + " for batches of " +
                             std::to_string(spec.batch.images) + ": " + error.what();
    if (error.status == dnnl_unimplemented) {
      throw Unavailable(what + "; use --precision fp32");
    }
    throw DeviceError(what);
  }
  return schedule;
}

void CpuExecutable::refuse_if_too_large(std::size_t planned_bytes, std::int32_t planned_images,
                                        std::size_t budget) const {
  // Weights, gradients, and what an optimiser may keep.
  const std::size_t fixed = 4 * layouts_.parameter_bytes;
  const auto ranks = static_cast<std::size_t>(spec_.local_ranks);
  const double per_image = static_cast<double>(planned_bytes) / planned_images;
  const double wanted = per_image * spec_.batch.images + static_cast<double>(fixed);
  const double share = static_cast<double>(budget) / static_cast<double>(ranks);
  if (wanted <= share) return;
  const double left = share - static_cast<double>(fixed);
  const auto largest = static_cast<std::int64_t>(std::floor(std::max(0., left) / per_image));
  throw ConfigError("--batch-size is " + std::to_string(spec_.batch.images) + ": training needs " +
                    gib(static_cast<std::size_t>(wanted) * ranks) + " of memory, and " +
                    gib(budget) + " are free; " +
                    (largest > 0 ? "the largest batch that fits is " + std::to_string(largest)
                                 : "not even one image fits: use a smaller model") +
                    (ranks > 1 ? " on each of " + std::to_string(ranks) + " devices" : ""));
}

void CpuExecutable::make_arenas() {
  const auto arena = [&](std::size_t bytes) {
    return bytes == 0 ? Buffer() : device_.allocate(bytes, MemoryKind::device);
  };
  weights_ = arena(layouts_.parameter_bytes);
  gradients_ = arena(layouts_.parameter_bytes);
  running_ = arena(layouts_.buffer_bytes);
  for (const ParameterLayout& layout : layouts_.parameters) {
    const std::size_t bytes = layout.arena.get_size();
    set_.parameters.push_back({layout.spec, tensor(weights_, layout.offset, bytes),
                               tensor(gradients_, layout.offset, bytes)});
  }
  for (const ParameterLayout& layout : layouts_.buffers) {
    set_.buffers.push_back(
        {layout.spec, tensor(running_, layout.offset, layout.plain.get_size()), {}});
  }
  set_.weights = tensor(weights_, 0, layouts_.parameter_bytes);
  set_.gradients = tensor(gradients_, 0, layouts_.parameter_bytes);
  set_.running = tensor(running_, 0, layouts_.buffer_bytes);
}

void CpuExecutable::bind_all() {
  const Homes homes{activations_.bytes().data(), weights_.bytes().data(), gradients_.bytes().data(),
                    running_.bytes().data()};
  for (const auto& schedule : schedules_) {
    if (schedule != nullptr) schedule->bind(homes);
  }
}

/// Phases take turns, so they share the memory of activations.
Schedule& CpuExecutable::prepare(Phase phase) {
  auto& schedule = schedules_[static_cast<std::size_t>(phase)];
  if (schedule == nullptr) {
    schedule = build(phase, spec_);
    if (schedule->planned_bytes() > activations_.bytes().size()) {
      activations_ = device_.allocate(schedule->planned_bytes(), MemoryKind::device);
    }
    bind_all();
  }
  return *schedule;
}

void CpuExecutable::run(Phase phase, const Batch& batch, Stream&, const GradientReady& ready,
                        StepResult& result) {
  result = {.images = batch.valid};
  if (graph_.nodes().empty()) return;
  const Team team(spec_.threads);
  Schedule& schedule = prepare(phase);
  try {
    schedule.run({batch, result, step_}, ready);
  } catch (const dnnl::error& error) {
    throw DeviceError(std::string("oneDNN failed in step ") + std::to_string(step_) + ": " +
                      error.what());
  }
  if (phase == Phase::train) ++step_;
}

namespace {

/// Reorders on the calling thread's team.
void copy(const dnnl::engine& engine, const dnnl::memory::desc& from_desc, const void* from,
          const dnnl::memory::desc& to_desc, void* to) {
  dnnl::stream stream(engine);
  dnnl::memory source(from_desc, engine, const_cast<void*>(from));
  dnnl::memory target(to_desc, engine, to);
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

}  // namespace

void CpuExecutable::read(std::size_t parameter, const Tensor& from, std::span<float> plain) {
  const ParameterLayout& layout = layouts_.parameters[parameter];
  PENSTOCK_ASSERT(plain.size_bytes() == layout.plain.get_size());
  copy(engine_, layout.arena, from.data, layout.plain, plain.data());
}

void CpuExecutable::write(std::size_t parameter, const Tensor& to, std::span<const float> plain) {
  const ParameterLayout& layout = layouts_.parameters[parameter];
  PENSTOCK_ASSERT(plain.size_bytes() == layout.plain.get_size());
  copy(engine_, layout.plain, plain.data(), layout.arena, to.data);
}

}  // namespace penstock::cpu
