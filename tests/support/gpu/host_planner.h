// SPDX-License-Identifier: Apache-2.0
// Plans of the host driver: one candidate for each well-formed graph, which the interpreter runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gpu/dnn_interpreter.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// Whether there is an engine for a graph; empty: for all.
using HasEngine = std::function<bool(const DnnGraph& graph)>;
/// What cuDNN 9 lacks on Hopper: convolutions with a stride, or a forward one with a kernel larger
/// than 1x1, that add a tensor on the way.
bool hopper_has_engine(const DnnGraph& graph);

/// Whether the graph multiplies f32. What is computed on the way to a product is rounded to the
/// type of its other operand.
bool has_f32_products(const DnnGraph& graph);

class HostPlanner final : public Planner {
 public:
  explicit HostPlanner(HasEngine has_engine = {}) : has_engine_(std::move(has_engine)) {}
  /// check() says what is thrown.
  std::vector<Candidate> candidates(const DnnGraph& graph, bool allow_tf32,
                                    std::size_t most) override;
  std::string dnn_version() const override { return "host"; }

 private:
  const HasEngine has_engine_;
};

struct HostPlan final : DnnPlan {
  HostPlan(const DnnGraph& of, const EngineChoice& choice);
  std::size_t workspace_bytes() const noexcept override { return workspace; }

  std::shared_ptr<const DnnGraph> graph;  ///< outlives the plan in what was enqueued
  F32Products products = F32Products::exact;
  std::size_t workspace = 0;
};

}  // namespace penstock::gpu
