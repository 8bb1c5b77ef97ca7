// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_planner.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

constexpr std::int64_t kExact = 0, kTf32 = 1;  // engines

/// Differs from graph to graph, so that mixing up workspaces shows.
std::size_t workspace_of(const DnnGraph& graph) {
  std::size_t largest = 0;
  for (const DnnTensor& tensor : graph.tensors) largest = std::max(largest, tensor.bytes());
  return 256 * (1 + largest / 2048);
}

bool has_f32_products(const DnnGraph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(), [&](const auto& operation) {
    if (const auto* forward = std::get_if<DnnConvolution>(&operation)) {
      return graph.tensor(forward->x).dtype == DType::f32;
    }
    if (const auto* data = std::get_if<DnnConvolutionBackwardData>(&operation)) {
      return graph.tensor(data->dy).dtype == DType::f32;
    }
    const auto* filter = std::get_if<DnnConvolutionBackwardFilter>(&operation);
    return filter != nullptr && graph.tensor(filter->x).dtype == DType::f32;
  });
}

}  // namespace

std::vector<Candidate> HostPlanner::candidates(const DnnGraph& graph, bool allow_tf32,
                                               std::size_t most) {
  check(graph);
  if (most == 0) return {};
  const bool wide = has_f32_products(graph);
  return {{.choice = {.engine = wide && allow_tf32 ? kTf32 : kExact, .knobs = {}},
           .workspace_bytes = workspace_of(graph),
           .tensor_cores = !wide || allow_tf32}};
}

HostPlan::HostPlan(const DnnGraph& of, const EngineChoice& choice)
    : graph(std::make_shared<const DnnGraph>(of)),
      products(choice.engine == kTf32 ? F32Products::tf32 : F32Products::exact),
      workspace(workspace_of(of)) {
  check(of);
  if ((choice.engine != kExact && choice.engine != kTf32) || !choice.knobs.empty()) {
    throw DeviceError("cannot build a plan with engine " + std::to_string(choice.engine) +
                      " on the host: it has engines 0 and 1 without knobs; take a candidate");
  }
}

}  // namespace penstock::gpu
