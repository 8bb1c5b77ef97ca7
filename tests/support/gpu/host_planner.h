// SPDX-License-Identifier: Apache-2.0
// The host driver's planner. Every well-formed graph has plans, which the interpreter runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gpu/dnn_interpreter.h"
#include "tests/support/gpu/host_streams.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// True if the graph adds two whole tensors.
bool adds_tensors(const DnnGraph& graph);
/// Whether there is an engine for a graph. Empty: all graphs have one.
using HasEngine = std::function<bool(const DnnGraph& graph)>;
/// False for graphs that cuDNN 9 does not support on Hopper: graphs that add a whole tensor and
/// contain a convolution with a stride, or a forward convolution with a kernel larger than 1x1.
bool hopper_has_engine(const DnnGraph& graph);

class HostPlanner final : public Planner {
 public:
  /// `engines` is the number of engines of each graph. `first_workspace`: bytes that engine 0 needs
  /// in addition to the others.
  explicit HostPlanner(HasEngine has_engine = {}, std::int64_t engines = 1,
                       std::size_t first_workspace = 0)
      : has_engine_(std::move(has_engine)), engines_(engines), first_workspace_(first_workspace) {}
  /// Throws what check() throws.
  std::vector<Candidate> candidates(const DnnGraph& graph, const PlanRules& rules,
                                    std::size_t most) override;
  /// The argument `most` of each call of candidates().
  const std::vector<std::size_t>& asked_for() const noexcept { return asked_for_; }

 private:
  const HasEngine has_engine_;
  const std::int64_t engines_;
  const std::size_t first_workspace_;
  std::vector<std::size_t> asked_for_;
};

struct HostPlan final : DnnPlan {
  /// Throws DeviceError for an engine that the planner does not offer.
  HostPlan(const DnnGraph& of, const EngineChoice& choice, std::int64_t engines = 1,
           std::size_t first_workspace = 0);
  std::size_t workspace_bytes() const noexcept override { return workspace; }
  /// Computes the graph; `tensors` is indexed like the graph's tensors.
  HostOperation operation(const std::vector<std::byte*>& tensors, std::byte* scratch) const;

  std::shared_ptr<const DnnGraph> graph;  ///< enqueued work may keep it longer than the plan lives
  std::int64_t engine = 0;
  F32Products products = F32Products::exact;
  std::size_t workspace = 0;
};

}  // namespace penstock::gpu
