// SPDX-License-Identifier: Apache-2.0
// Time by operation of a step: by type, and by single operation. Backends name the operations that
// they record "TYPE: NODE" ("conv2d forward: conv1"); names without a node are types, such as the
// kernels of a GPU.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/record/run_result.h"
#include "dataflow/clock.h"
#include "trainer/graph.h"

namespace penstock {

/// One thread at a time.
class OperationProfile {
 public:
  /// A step of one rank took `time` on its device, without idle time.
  void add_step(Nanoseconds time);
  /// An operation of one of the steps.
  void add(const std::string& name, Nanoseconds time);
  /// Splits the time of all steps so far by the arithmetic of the model, for devices that do not
  /// compute: a backward pass of a layer has twice the multiply-accumulates of the forward pass.
  /// Names say so.
  void add_by_arithmetic(const Graph& graph, bool trains);

  /// Times by type, the longest first. Time of a step outside all operations is "other: update,
  /// exchange, host". Empty without operations.
  std::vector<OperationUse> types() const;
  /// Times by operation, the longest first.
  std::vector<OperationUse> operations() const;
  std::size_t steps() const noexcept { return steps_; }
  /// Both as a table for readers, with the `most` longest operations.
  std::string text(std::size_t most) const;

 private:
  struct Sum {
    double calls = 0;
    Nanoseconds time{};
  };
  std::vector<OperationUse> uses_of(const std::map<std::string, Sum>& sums) const;

  std::size_t steps_ = 0;  // of all ranks
  Nanoseconds time_{};     // of all steps
  std::map<std::string, Sum> sums_;
};

}  // namespace penstock
