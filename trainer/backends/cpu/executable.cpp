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

/// A lower bound: every convolution's output is kept from forward to backward.
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

/// Other phases are compiled at their first run, when `progress` may no longer exist.
ExecutableSpec without_progress(ExecutableSpec spec) {
  spec.progress = {};
  return spec;
}

}  // namespace

CpuExecutable::CpuExecutable(Graph graph, const ExecutableSpec& spec, Device& device,
                             const CpuOptions& options)
    : graph_(std::move(graph)),
      spec_(without_progress(spec)),
      device_(device),
      options_(options),
      engine_(dnnl::engine::kind::cpu, 0),
      layouts_(make_layouts(graph_)) {
  if (graph_.nodes().empty()) return;
  ExecutableSpec first = spec;
  constexpr std::int32_t kTrialImages = 8;
  if (least_bytes(graph_, spec) > share_of_memory()) {  // the full one may take too long
    first.batch.images = std::min(kTrialImages, spec.batch.images);
    first.progress = {};
  }
  auto schedule = build(Phase::train, first);
  const bool is_trial = first.batch.images != spec_.batch.images;
  if (is_trial || rank_bytes(*schedule) > share_of_memory()) {
    refuse(first.batch.images, schedule->planned_bytes());
  }
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
    Builder(graph_, spec, engine_, phase, options_, layouts_, *schedule).build();
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

std::size_t CpuExecutable::share_of_memory() const {
  return options_.memory_budget / static_cast<std::size_t>(spec_.local_ranks);
}

/// Weights and gradients, and twice that size again for an optimiser's state.
std::size_t CpuExecutable::rank_bytes(const Schedule& schedule) const {
  return schedule.planned_bytes() + 4 * layouts_.parameter_bytes;
}

/// Plans do not grow linearly with the batch, because oneDNN's workspaces do not. So this tries a
/// guess from one plan, and corrects it by the resulting plan if that is too large.
std::int32_t CpuExecutable::find_batch_that_fits(std::int32_t images, std::size_t planned_bytes) {
  constexpr int kGuesses = 6;
  const std::size_t fixed = 4 * layouts_.parameter_bytes;
  if (share_of_memory() <= fixed) return 0;
  const double left = static_cast<double>(share_of_memory() - fixed);
  std::int32_t most = spec_.batch.images - 1;
  for (int guess = 0; guess < kGuesses; ++guess) {
    const double fitting = std::floor(left * images / static_cast<double>(planned_bytes));
    images = static_cast<std::int32_t>(std::min(fitting, static_cast<double>(most)));
    if (images < 1) return 0;
    ExecutableSpec smaller = spec_;
    smaller.batch.images = images;
    const auto schedule = build(Phase::train, smaller);
    if (rank_bytes(*schedule) <= share_of_memory()) return images;
    planned_bytes = schedule->planned_bytes();
    most = images - 1;
  }
  return 0;
}

void CpuExecutable::refuse(std::int32_t planned_images, std::size_t planned_bytes) {
  const double per_image = static_cast<double>(planned_bytes) / planned_images;
  const double wanted =
      (per_image * spec_.batch.images + 4 * static_cast<double>(layouts_.parameter_bytes)) *
      spec_.local_ranks;
  const std::int32_t fitting = find_batch_that_fits(planned_images, planned_bytes);
  throw ConfigError("--batch-size is " + std::to_string(spec_.batch.images) + ": training on " +
                    std::to_string(spec_.local_ranks) +
                    (spec_.local_ranks == 1 ? " device" : " devices") + " needs " +
                    gib(static_cast<std::size_t>(wanted)) + " of memory, and " +
                    gib(options_.memory_budget) + " may be used; " +
                    (fitting > 0 ? "a batch of " + std::to_string(fitting) + " fits"
                                 : "not even one image fits: use a smaller model"));
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

/// Phases run in turn, so they share the memory of activations.
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

void CpuExecutable::read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) {
  const ParameterLayout& layout = layouts_.of(spec);
  PENSTOCK_ASSERT(plain.size_bytes() == layout.plain.get_size());
  copy(engine_, layout.arena, from.data, layout.plain, plain.data());
}

void CpuExecutable::write(const ParameterSpec& spec, const Tensor& to,
                          std::span<const float> plain) {
  const ParameterLayout& layout = layouts_.of(spec);
  PENSTOCK_ASSERT(plain.size_bytes() == layout.plain.get_size());
  copy(engine_, layout.plain, plain.data(), layout.arena, to.data);
}

}  // namespace penstock::cpu
