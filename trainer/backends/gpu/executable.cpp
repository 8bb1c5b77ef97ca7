// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/backends/compiler/memory_plan.h"
#include "trainer/backends/gpu/builder.h"
#include "trainer/backends/gpu/find_plan.h"
#include "trainer/backends/gpu/time_plans.h"

namespace penstock::gpu {
namespace {

constexpr std::array kPhaseList = {Phase::train, Phase::evaluate, Phase::forward_only};
/// Values that an optimiser may keep for each weight.
constexpr std::size_t kOptimizerSlots = 2;
/// The time of a Penstock kernel in addition to moving its bytes.
constexpr double kLaunchMicroseconds = 2;
/// The part of the memory that one workspace may take.
constexpr std::size_t kWorkspaceShare = 16;

}  // namespace

std::size_t automatic_workspace(const Graph& graph, std::int32_t images, DType type,
                                std::size_t memory_bytes) {
  std::size_t largest = 0;
  for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
    if (graph.nodes()[index].forward_macs == 0) continue;
    const ConvolutionShape shape =
        convolution_shape(graph, static_cast<NodeId>(index), images, type);
    std::size_t bytes = 0;
    for (const DnnTensor& tensor : conv_forward(shape).graph.tensors) bytes += tensor.bytes();
    largest = std::max(largest, bytes);
  }
  return std::max(PlanRules{}.workspace_limit,
                  std::min(largest + largest / 16, memory_bytes / kWorkspaceShare));
}

GpuExecutable::GpuExecutable(Graph graph, const ExecutableSpec& spec, GpuDevice& device,
                             const PlanRules& rules, const FormModes& forms, PlanBook& book,
                             std::size_t memory_budget)
    : graph_(std::move(graph)),
      spec_(spec),
      device_(device),
      rules_(rules),
      forms_(forms),
      book_(book),
      memory_budget_(memory_budget),
      layouts_(make_layouts(graph_, dtype_of(spec.precision))) {
  if (rules_.workspace_limit == 0) {
    rules_.workspace_limit = automatic_workspace(
        graph_, spec.batch.images, dtype_of(spec.precision), device_.driver().facts().memory_bytes);
  }
  // Check before engines are timed, which takes memory and time.
  if (const std::size_t least = least_planned_bytes(); least + fixed_bytes() > memory_budget_) {
    refuse(least);
  }
  Plans plans;
  std::size_t planned = 0, done = 0;
  for (const Phase phase : kPhaseList) {
    auto& schedule = schedules_[static_cast<std::size_t>(phase)];
    const FusionPlan fused = plan_fusion_of(phase, spec_, false);
    fused_ += fused.size();
    schedule = build(phase, spec_, fused, plans, done);
    planned = std::max(planned, schedule->planned_bytes());
  }
  book_.save();
  if (planned + fixed_bytes() > memory_budget_) refuse(planned);
  make_arenas();
  block_ = device_.allocate(std::max<std::size_t>(planned, 1), MemoryKind::device);
  warm_up();
}

/// Chooses and builds the plans of the phase's graphs; reuses those that are in `plans` already.
std::unique_ptr<Schedule> GpuExecutable::build(Phase phase, const ExecutableSpec& spec,
                                               const FusionPlan& fusion, Plans& plans,
                                               std::size_t& done) {
  auto schedule = std::make_unique<Schedule>();
  Builder(graph_, spec, phase, layouts_, fusion, *schedule).build();
  std::size_t total = done;
  schedule->for_each_dnn_call([&](Schedule::DnnCall&) { ++total; });
  schedule->for_each_dnn_call([&](Schedule::DnnCall& call) {
    auto& plan = plans[to_text(call.graph)];
    if (plan == nullptr) {
      plan = make_plan(call.graph, rules_, device_.driver(), book_);
      const std::optional<PlanChoice> choice = book_.find(call.graph, rules_);
      if (choice && choice->excluded_bytes > 0) {
        ++graphs_without_first_engine_;
        excluded_bytes_ = std::max(excluded_bytes_, choice->excluded_bytes);
      }
    }
    call.plan = plan;
    if (spec.progress) spec.progress(++done, total);
  });
  schedule->plan();
  return schedule;
}

std::string GpuExecutable::workspace_note() const {
  if (graphs_without_first_engine_ == 0) return {};
  return fmt::format(
      "for {} of the model's graphs, the engine that cuDNN recommends needs up to {} MiB of "
      "workspace; the limit is {} MiB, so they use other engines: raise gpu:workspace_mib",
      graphs_without_first_engine_, (excluded_bytes_ + (1 << 20) - 1) >> 20,
      rules_.workspace_limit >> 20);
}

/// `has_all`: every graph counts as one that has an engine, and no engine is asked for.
FusionPlan GpuExecutable::plan_fusion_of(Phase phase, const ExecutableSpec& spec,
                                         bool has_all) const {
  const auto costs = [&](FormMode mode) {
    return has_all ? fuse_all([](const DnnGraph&) { return true; }) : costs_for(mode);
  };
  const std::int32_t images = spec.batch.images;
  FusionPlan plan;
  if (phase == Phase::train && spec.precision == Precision::f16 && forms_.fused != FormMode::off) {
    plan = plan_fusion(graph_, images, costs(forms_.fused));
  }
  if (forms_.stem_blocks != FormMode::off) {
    const DType dtype = dtype_of(spec.precision);
    plan.stem = plan_stem(graph_, images, dtype, costs(forms_.stem_blocks));
  }
  return plan;
}

/// An engine that fails counts as missing: another form of the same place may work.
FusionCosts GpuExecutable::costs_for(FormMode mode) const {
  const auto find = [this](const DnnGraph& graph) -> std::optional<PlanChoice> {
    if (spec_.progress) spec_.progress(0, 0);  // the total is unknown: it depends on costs
    try {
      return find_plan(graph, rules_, device_.driver(), book_);
    } catch (const DeviceLost&) {
      throw;
    } catch (const DeviceError& error) {
      expect_alive(device_.driver(), error);
      return std::nullopt;
    }
  };
  if (mode == FormMode::on || !rules_.autotune) {
    return fuse_all([find](const DnnGraph& graph) { return find(graph).has_value(); });
  }
  return {.graph =
              [find](const DnnGraph& graph) {
                const std::optional<PlanChoice> plan = find(graph);
                return plan ? plan->microseconds : std::numeric_limits<double>::infinity();
              },
          .kernel =
              [this](double bytes) {
                if (!book_.copy_rate()) book_.set_copy_rate(time_copies(device_.driver()));
                return kLaunchMicroseconds + bytes / *book_.copy_rate();
              }};
}

/// Bytes of weights, gradients, their 16-bit copies, and the optimiser's state.
std::size_t GpuExecutable::fixed_bytes() const {
  const std::size_t shorts = is_short(spec_.precision) ? 2 * size_of(DType::f16) : 0;
  return layouts_.parameter_elements * ((2 + kOptimizerSlots) * sizeof(float) + shorts) +
         layouts_.buffer_elements * sizeof(float);
}

/// Bytes without workspaces and with every possible fusion.
std::size_t GpuExecutable::least_planned_bytes() const {
  const FusionPlan fusion = plan_fusion_of(Phase::train, spec_, true);
  Schedule schedule;
  Builder(graph_, spec_, Phase::train, layouts_, fusion, schedule).build();
  schedule.plan();
  return schedule.planned_bytes();
}

void GpuExecutable::refuse(std::size_t planned_bytes) {
  rules_.autotune = false;  // any engine will do to find a batch size
  const std::int32_t fitting = compiler::find_batch_that_fits(
      {spec_.batch.images, planned_bytes}, spec_.batch.images,
      memory_budget_ - std::min(memory_budget_, fixed_bytes()), [this](std::int32_t images) {
        ExecutableSpec smaller = spec_;
        smaller.batch.images = images;
        smaller.progress = {};
        Plans plans;
        std::size_t done = 0;
        const FusionPlan fusion = plan_fusion_of(Phase::train, smaller, false);
        return build(Phase::train, smaller, fusion, plans, done)->planned_bytes();
      });
  throw compiler::batch_too_large(
      spec_.batch.images,
      fmt::format("training needs {} on {}",
                  size_text(static_cast<double>(planned_bytes + fixed_bytes())),
                  device_.driver().facts().name),
      memory_budget_, fitting);
}

Buffer GpuExecutable::zeroed(std::size_t bytes) {
  if (bytes == 0) return {};
  Buffer buffer = device_.allocate(bytes, MemoryKind::device);
  const std::vector<std::byte> zeros(std::min(bytes, std::size_t{16} << 20));
  for (std::size_t done = 0; done < bytes; done += zeros.size()) {
    device_.copy_now(buffer.bytes().data() + done, zeros.data(),
                     std::min(zeros.size(), bytes - done));
  }
  return buffer;
}

void GpuExecutable::make_arenas() {
  const std::size_t count = layouts_.parameter_elements;
  weights_ = zeroed(count * sizeof(float));
  gradients_ = zeroed(count * sizeof(float));
  running_ = zeroed(layouts_.buffer_elements * sizeof(float));
  if (is_short(spec_.precision)) {
    const std::size_t size = size_of(dtype_of(spec_.precision));
    short_weights_ = zeroed(count * size);
    short_gradients_ = zeroed(count * size);
    const std::vector<ArenaChunk> chunks = short_chunks(layouts_);
    tables_ = zeroed(chunks.size() * sizeof(ArenaChunk));
    device_.copy_now(tables_.bytes().data(), reinterpret_cast<const std::byte*>(chunks.data()),
                     tables_.bytes().size());
  }
  first_chunks_.assign(1, 0);
  for (const ParameterLayout& layout : layouts_.parameters) {
    first_chunks_.push_back(first_chunks_.back() +
                            (layout.count + kChunkElements - 1) / kChunkElements);
  }
  set_ = layouts_.set_in(weights_, gradients_, running_);
  if (!set_.parameters.empty()) group_ends_ = {set_.parameters.size()};
}

/// Runs each phase once. Libraries load their kernels at the first launch, which must not happen in
/// a recording. The caller later sets the weights, and with them overwrites the gradients and
/// running statistics that this run leaves behind.
void GpuExecutable::warm_up() {
  const BatchSpec& spec = spec_.batch;
  Buffer pixels = zeroed(spec.pixel_bytes()), labels = zeroed(spec.label_bytes());
  Buffer pinned = device_.allocate(sizeof(StepResult), MemoryKind::pinned);
  auto* const result = ::new (pinned.bytes().data()) StepResult;
  const Batch batch{pixels.bytes(),
                    {reinterpret_cast<std::int32_t*>(labels.bytes().data()),
                     static_cast<std::size_t>(spec.images)},
                    spec.images};
  GpuStream stream(device_.driver());
  for (const Phase phase : kPhaseList) run(phase, batch, stream, {}, *result);
  stream.finish();
  step_ = 0;
}

Homes GpuExecutable::homes_for(const Batch& batch, StepResult& result) {
  Homes homes{};
  const auto set = [&](Home home, std::byte* base) {
    homes[static_cast<std::size_t>(home)] = base;
  };
  set(Home::planned, block_.bytes().data());
  set(Home::weights, weights_.bytes().data());
  set(Home::gradients, gradients_.bytes().data());
  set(Home::running, running_.bytes().data());
  set(Home::short_weights, short_weights_.bytes().data());
  set(Home::short_gradients, short_gradients_.bytes().data());
  set(Home::tables, tables_.bytes().data());
  set(Home::scalars, reinterpret_cast<std::byte*>(device_.scalars()));
  set(Home::pixels, batch.pixels.data());
  set(Home::labels, reinterpret_cast<std::byte*>(batch.labels.data()));
  set(Home::result, reinterpret_cast<std::byte*>(&result));
  return homes;
}

void GpuExecutable::run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
                        StepResult& result) {
  GpuStream& on = GpuStream::of(stream);
  const float loss_scale = spec_.loss_scale_count_to > 0 ? 0 : spec_.loss_scale;
  on.at_launch([this, phase, &batch, loss_scale, handle = on.handle()] {
    device_.driver().launch(handle, SetStep{device_.scalars(), step_, batch.valid, loss_scale});
    if (phase == Phase::train) ++step_;
  });
  const Homes homes = homes_for(batch, result);
  if (phase == Phase::train && is_short(spec_.precision)) {
    train_short(on.handle(), homes, ready);
  } else {
    schedule(phase).run(device_.driver(), on.handle(), homes, ready);
  }
}

void GpuExecutable::group_gradients(std::span<const std::size_t> parameters) {
  group_ends_.clear();
  std::size_t end = 0;
  for (const std::size_t count : parameters) {
    if (count > 0) group_ends_.push_back(end += count);
  }
  PENSTOCK_ASSERT(end == layouts_.parameters.size());
}

/// Widens each group of gradients when all of them are complete, then reports them as ready.
void GpuExecutable::train_short(StreamHandle stream, const Homes& homes,
                                const GradientReady& ready) const {
  std::vector<std::size_t> missing;
  for (std::size_t first = 0; const std::size_t end : group_ends_) {
    missing.push_back(end - first);
    first = end;
  }
  const auto finish = [&](std::size_t group) {
    missing[group] = 0;
    const std::size_t first = group == 0 ? 0 : group_ends_[group - 1], end = group_ends_[group];
    device_.driver().launch(stream,
                            widen_gradients(homes, dtype_of(spec_.precision), first_chunks_[first],
                                            first_chunks_[end] - first_chunks_[first]));
    for (std::size_t parameter = first; ready && parameter < end; ++parameter) ready(parameter);
  };
  schedule(Phase::train).run(device_.driver(), stream, homes, [&](std::size_t parameter) {
    const auto group = static_cast<std::size_t>(
        std::upper_bound(group_ends_.begin(), group_ends_.end(), parameter) - group_ends_.begin());
    if (--missing[group] == 0) finish(group);
  });
  for (std::size_t group = 0; group < missing.size(); ++group) {
    if (missing[group] > 0) finish(group);  // no operation marked its gradients
  }
}

void GpuExecutable::read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) {
  const ParameterLayout& layout = layouts_.of(spec);
  std::vector<float> own(layout.count);
  device_.copy_now(reinterpret_cast<std::byte*>(own.data()),
                   static_cast<const std::byte*>(from.data), own.size() * sizeof(float));
  layout.to_plain(own, plain);
}

void GpuExecutable::write(const ParameterSpec& spec, const Tensor& to,
                          std::span<const float> plain) {
  const ParameterLayout& layout = layouts_.of(spec);
  std::vector<float> own(layout.count);
  layout.to_own(plain, own);
  device_.copy_now(static_cast<std::byte*>(to.data), reinterpret_cast<const std::byte*>(own.data()),
                   own.size() * sizeof(float));
}

}  // namespace penstock::gpu
