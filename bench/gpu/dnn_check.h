// SPDX-License-Identifier: Apache-2.0
// A graph of the DNN library on the device, with each engine that a run might take, against plain
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
  /// The library may have no engine: then the check is skipped instead of failed.
  bool may_lack_engine = false;
};

/// Makes the checks in order. Operands are random, outputs poisoned, and each engine runs twice:
/// those that say that they are deterministic must repeat every bit. References are computed on all
/// processors, ahead of the device. Throws DeviceLost after the check that loses the device.
void check_graphs(const std::vector<DnnCheck>& checks, const CheckSettings& settings,
                  Workbench& bench, CheckReport& report);

}  // namespace penstock::gpu
