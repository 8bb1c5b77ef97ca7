// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

/// A lower bound: every convolution's output is kept from forward to backward.
std::size_t least_bytes(const Graph& graph, const ExecutableSpec& spec) {
  const std::size_t element = spec.precision == Precision::f32 ? 4 : 2;
  std::size_t sum = 0;
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Conv2d>(node.op)) sum += node.shape.elements();
  }
  return sum * element * static_cast<std::size_t>(spec.batch.images);
}

/// Other phases are compiled at their first run, when `progress` may no longer exist.
ExecutableSpec without_progress(ExecutableSpec spec) {
  spec.progress = {};
  return spec;
}

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

CpuExecutable::CpuExecutable(Graph graph, const ExecutableSpec& spec, Device& device,
                             const CpuOptions& options, OperationRecorder recorder)
    : graph_(std::move(graph)),
      spec_(without_progress(spec)),
      device_(device),
      options_(options),
      recorder_(std::move(recorder)),
      engine_(dnnl::engine::kind::cpu, 0),
      layouts_(graph_) {
  if (graph_.nodes().empty()) return;
  ExecutableSpec first = spec;
  constexpr std::int32_t kTrialImages = 8;
  if (least_bytes(graph_, spec) > share_of_memory()) {  // the full one may take too long
    first.batch.images = std::min(kTrialImages, spec.batch.images);
    first.progress = {};
  }
  auto schedule = build(Phase::train, first);
  const bool is_trial = first.batch.images != spec_.batch.images;
  if (is_trial || schedule->planned_bytes() + fixed_bytes() > share_of_memory()) {
    refuse({first.batch.images, schedule->planned_bytes()});
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
    const std::string what =
        fmt::format("oneDNN cannot compile the model in {} for batches of {}: {}",
                    to_string(spec.precision), spec.batch.images, error.what());
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
std::size_t CpuExecutable::fixed_bytes() const {
  return 4 * layouts_.parameter_elements * sizeof(float);
}

void CpuExecutable::refuse(const compiler::PlannedBatch& planned) {
  const double planned_bytes =
      static_cast<double>(planned.bytes) / planned.images * spec_.batch.images;
  const double required = (planned_bytes + static_cast<double>(fixed_bytes())) * spec_.local_ranks;
  const std::size_t share = share_of_memory();
  const std::int32_t fitting = compiler::find_batch_that_fits(
      planned, spec_.batch.images, share - std::min(share, fixed_bytes()),
      [this](std::int32_t images) {
        ExecutableSpec smaller = spec_;
        smaller.batch.images = images;
        return build(Phase::train, smaller)->planned_bytes();
      });
  throw compiler::batch_too_large(
      spec_.batch.images,
      fmt::format("training on {} device{} needs {} of memory", spec_.local_ranks,
                  spec_.local_ranks == 1 ? "" : "s", size_text(required)),
      options_.memory_budget, fitting);
}

void CpuExecutable::make_arenas() {
  const auto arena = [&](std::size_t elements) {
    return elements == 0 ? Buffer()
                         : device_.allocate(elements * sizeof(float), MemoryKind::device);
  };
  weights_ = arena(layouts_.parameter_elements);
  gradients_ = arena(layouts_.parameter_elements);
  running_ = arena(layouts_.buffer_elements);
  set_ = layouts_.set_in(weights_, gradients_, running_);
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
    schedule.run({batch, result, step_}, ready, recorder_);
  } catch (const dnnl::error& error) {
    throw DeviceError("oneDNN failed in step {}: {}", step_, error.what());
  }
  if (phase == Phase::train) ++step_;
}

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
