// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_planner.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

constexpr std::int64_t kExact = 0, kTf32 = 1;  // engines

/// Differs between graphs, so that a test notices mixed-up workspaces.
std::size_t workspace_of(const DnnGraph& graph) {
  std::size_t largest = 0;
  for (const DnnTensor& tensor : graph.tensors) largest = std::max(largest, tensor.bytes());
  return 256 * (1 + largest / 2048);
}

bool convolves_plainly(const DnnGraph& graph, const DnnOperation& operation) {
  constexpr std::array<std::int64_t, 2> kNoStride{1, 1};
  if (const auto* const data = std::get_if<DnnConvolutionBackwardData>(&operation)) {
    return data->window.stride == kNoStride;
  }
  const auto* const forward = std::get_if<DnnConvolution>(&operation);
  if (forward == nullptr) return true;
  const std::array<std::int64_t, 4>& w = graph.tensor(forward->w).shape;
  return forward->window.stride == kNoStride && w[2] == 1 && w[3] == 1;
}

}  // namespace

bool adds_tensors(const DnnGraph& graph) {
  return std::ranges::any_of(graph.operations, [&](const DnnOperation& operation) {
    const auto* const add = std::get_if<DnnPointwise>(&operation);
    return add != nullptr && add->mode == PointwiseMode::add &&
           graph.tensor(add->x).shape == graph.tensor(add->b).shape;
  });
}

bool hopper_has_engine(const DnnGraph& graph) {
  const auto is_plain = [&](const DnnOperation& op) { return convolves_plainly(graph, op); };
  return !adds_tensors(graph) || std::ranges::all_of(graph.operations, is_plain);
}

std::vector<Candidate> HostPlanner::candidates(const DnnGraph& graph, const PlanRules& rules,
                                               std::size_t most) {
  check(graph);
  asked_for_.push_back(most);
  if (has_engine_ && !has_engine_(graph)) return {};
  const bool wide = multiplies_f32(graph);
  std::vector<Candidate> found;
  std::size_t excluded_bytes = 0;
  for (std::int64_t engine = 0; engine <= engines_ && found.size() < most; ++engine) {
    if (engine == (wide && rules.allow_tf32 ? kExact : kTf32)) continue;
    const EngineChoice choice{.engine = engine, .knobs = {}};
    auto plan = std::make_shared<const HostPlan>(graph, choice, engines_, first_workspace_);
    if (const std::size_t bytes = plan->workspace; bytes > rules.workspace_limit) {
      if (found.empty() && excluded_bytes == 0) excluded_bytes = bytes;
      continue;
    }
    found.push_back({.choice = choice,
                     .workspace_bytes = plan->workspace,
                     .tensor_cores = !wide || rules.allow_tf32,
                     .excluded_bytes = excluded_bytes,
                     .plan = std::move(plan)});
  }
  return found;
}

HostPlan::HostPlan(const DnnGraph& of, const EngineChoice& choice, std::int64_t engines,
                   std::size_t first_workspace)
    : graph(std::make_shared<const DnnGraph>(of)),
      engine(choice.engine),
      products(engine == kTf32 ? F32Products::tf32 : F32Products::exact),
      workspace(workspace_of(of) + (engine == kExact ? first_workspace : 0)) {
  check(of);
  if (engine < 0 || engine > engines || !choice.knobs.empty()) {
    throw DeviceError("cannot build a plan with engine " + std::to_string(engine) +
                      " on the host: it has engines 0 to " + std::to_string(engines) +
                      " without knobs; take a candidate");
  }
}

HostOperation HostPlan::operation(const std::vector<std::byte*>& tensors,
                                  std::byte* scratch) const {
  return {.name = to_text(*graph),
          .accesses =
              [=, of = graph, bytes = workspace] {
                Accesses accesses = accesses_of(*of, tensors);
                accesses.writes.push_back({scratch, bytes});
                return accesses;
              },
          .run =
              [=, of = graph, bytes = workspace, how = products] {
                std::memset(scratch, 0xFF, bytes);
                interpret(*of, tensors, how);
              }};
}

}  // namespace penstock::gpu
