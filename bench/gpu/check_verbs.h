// SPDX-License-Identifier: Apache-2.0
// The verbs of penstock_gpu_check: each makes its checks and adds them to the report. They throw
// Unavailable where the machine lacks what they need.
#pragma once

#include "bench/gpu/check_report.h"

namespace penstock::gpu {

/// What the device is, and how that differs from the description in settings.expected.
void check_device(const CheckSettings& settings, CheckReport& report);
/// Rates of copies and matrix products, in GB/s and TFLOP/s.
void check_ceilings(const CheckSettings& settings, CheckReport& report);
/// Every kernel of our own at a network's shapes and at awkward ones.
void check_kernels(const CheckSettings& settings, CheckReport& report);
/// The convolutions and linear layers of networks, forward and backward, in every precision.
void check_convolutions(const CheckSettings& settings, CheckReport& report);
/// Convolutions fused with the batch norms around them.
void check_patterns(const CheckSettings& settings, CheckReport& report);
/// The backend as a whole on small graphs of every operator.
void check_small_graphs(const CheckSettings& settings, CheckReport& report);

}  // namespace penstock::gpu
