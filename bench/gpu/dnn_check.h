// SPDX-License-Identifier: Apache-2.0
// Checks a graph of the DNN library: each engine that a run might use, on the device, against plain
// loops in double on the host.
#pragma once

#include <string>
#include <vector>

#include "bench/gpu/check_report.h"
#include "bench/gpu/workbench.h"
#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

struct DnnCheck {
  std::string name;
  DnnGraph graph;
  bool allow_tf32 = false;
  /// Largest relative error in the L2 norm of any tensor.
  double tolerance = 0;
  /// If the library has no engine, the check is skipped instead of failed.
  bool may_lack_engine = false;
};

/// Runs the checks in order. Operands are random and outputs are poisoned. Each engine runs twice:
/// an engine that claims to be deterministic must repeat every bit. All processors compute the
/// references ahead of the device. Throws DeviceLost after a check that loses the device.
void check_graphs(const std::vector<DnnCheck>& checks, const CheckSettings& settings,
                  Workbench& bench, CheckReport& report);

}  // namespace penstock::gpu
