// SPDX-License-Identifier: Apache-2.0
// The verbs of penstock_gpu_check: each runs its checks and adds them to the report. They throw
// Unavailable if the machine lacks something that they need.
#pragma once

#include "bench/gpu/check_report.h"

namespace penstock::gpu {

/// Reports the device's properties, and how they differ from the description in settings.expected.
void check_device(const CheckSettings& settings, CheckReport& report);
/// Measures the rates of copies and matrix products, in GB/s and TFLOP/s.
void check_ceilings(const CheckSettings& settings, CheckReport& report);
/// Checks every Penstock kernel at a network's shapes and at awkward ones.
void check_kernels(const CheckSettings& settings, CheckReport& report);
/// Checks the convolutions and linear layers of networks, forward and backward, in every precision.
void check_convolutions(const CheckSettings& settings, CheckReport& report);
/// Checks convolutions fused with the batch norms around them.
void check_patterns(const CheckSettings& settings, CheckReport& report);
/// Checks the whole backend on small graphs of every operator.
void check_small_graphs(const CheckSettings& settings, CheckReport& report);

}  // namespace penstock::gpu
