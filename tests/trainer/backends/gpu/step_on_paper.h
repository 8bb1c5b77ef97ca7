// SPDX-License-Identifier: Apache-2.0
// A training step in f16 as a schedule, built without a device. Tests count its kernels, graphs and
// bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gpu/accesses.h"
#include "trainer/backends/gpu/builder.h"
#include "trainer/backends/gpu/fusion.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/backends/gpu/schedule.h"
#include "trainer/model.h"

namespace penstock::gpu {

inline Graph graph_of_model(std::string_view name) {
  const ModelEntry& model = find_entry(model_table(), name);
  return build_graph(model, model.image, model.classes);
}

/// The bytes that an engine must read and write. It need not read again what it computes itself.
inline double bytes_of(const DnnGraph& graph) {
  std::byte first{};  // addresses are counted, not accessed
  std::vector<std::byte*> tensors;
  for (const DnnTensor& tensor : graph.tensors) {
    tensors.push_back(tensor.is_virtual ? nullptr : &first + tensors.size());
  }
  const Accesses accesses = accesses_of(graph, tensors);
  double bytes = 0;
  for (const MemoryRange& range : accesses.writes) bytes += double(range.bytes);
  for (const MemoryRange& range : accesses.reads) {
    const bool computed = graph.operations.size() > 1 &&
                          std::ranges::find(accesses.writes, range) != accesses.writes.end();
    if (!computed) bytes += double(range.bytes);
  }
  return bytes;
}

class StepOnPaper {
 public:
  StepOnPaper(const Graph& graph, std::int32_t images, const FusionCosts& costs)
      : StepOnPaper(graph, images, planned(graph, images, costs)) {}
  StepOnPaper(const Graph& graph, std::int32_t images, FusionPlan plan)
      : graph_(graph), layouts_(make_layouts(graph_, DType::f16)), fusion(std::move(plan)) {
    const ExecutableSpec spec{.batch = {.images = images,
                                        .image = graph.input_shape(),
                                        .classes = graph.nodes().back().shape.channels},
                              .precision = Precision::f16};
    Builder(graph_, spec, Phase::train, layouts_, fusion, schedule).build();
  }

  /// The names of kernels, with the number of calls of each.
  std::map<std::string, int> kernels() const {
    std::map<std::string, int> calls;
    visit([&](const KernelCall& call) { ++calls[name_of(call)]; },
          [](const DnnGraph&, std::span<std::byte* const>) {});
    return calls;
  }
  /// The distinct graphs, by their text.
  std::map<std::string, DnnGraph> graphs() const {
    std::map<std::string, DnnGraph> all;
    visit([](const KernelCall&) {},
          [&](const DnnGraph& graph, std::span<std::byte* const>) { all[to_text(graph)] = graph; });
    return all;
  }
  /// The bytes that operations read and write; a tensor counts once per operation.
  double bytes_moved() const {
    double bytes = 0;
    visit([&](const KernelCall& call) { bytes += double(accesses_of(call).bytes()); },
          [&](const DnnGraph& graph, std::span<std::byte* const>) { bytes += bytes_of(graph); });
    return bytes;
  }
  /// The parameters whose gradients operations complete, in order.
  std::vector<std::size_t> completed() const {
    std::vector<std::size_t> parameters;
    visit([](const KernelCall&) {}, [](const DnnGraph&, std::span<std::byte* const>) {},
          [&](std::size_t parameter) { parameters.push_back(parameter); });
    return parameters;
  }
  std::size_t parameter_count() const { return layouts_.parameters.size(); }
  /// Bytes without workspaces. Nothing can be added afterwards.
  std::size_t planned_bytes() {
    struct NoPlan final : DnnPlan {
      std::size_t workspace_bytes() const noexcept override { return 0; }
    };
    const auto plan = std::make_shared<const NoPlan>();
    schedule.for_each_dnn_call([&](Schedule::DnnCall& call) { call.plan = plan; });
    schedule.plan();
    return schedule.planned_bytes();
  }

 private:
  static FusionPlan planned(const Graph& graph, std::int32_t images, const FusionCosts& costs) {
    FusionPlan plan = plan_fusion(graph, images, costs);
    plan.stem = plan_stem(graph, images, DType::f16, costs);
    return plan;
  }
  void visit(const std::function<void(const KernelCall&)>& kernel,
             const std::function<void(const DnnGraph&, std::span<std::byte* const>)>& dnn,
             const std::function<void(std::size_t)>& completed = {}) const {
    // Addresses are counted, not accessed, except those of the tables.
    static std::byte anywhere{};
    std::vector<ArenaChunk> chunks = short_chunks(layouts_);
    Homes homes;
    homes.fill(&anywhere);
    homes[static_cast<std::size_t>(Home::tables)] = reinterpret_cast<std::byte*>(chunks.data());
    schedule.visit(homes,
                   {.kernel = kernel,
                    .dnn = [&](const Schedule::DnnCall& call, std::span<std::byte* const> tensors,
                               std::byte*) { dnn(call.graph, tensors); },
                    .completed = completed});
    kernel(widen_gradients(homes, DType::f16, 0, chunks.size()));
  }

  const Graph graph_;
  const Layouts layouts_;

 public:
  const FusionPlan fusion;
  Schedule schedule;
};

}  // namespace penstock::gpu
