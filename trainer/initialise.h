// SPDX-License-Identifier: Apache-2.0
// The initial weights, equal on every backend: a function of the seed and the parameter's name.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/backend.h"

namespace penstock {

/// Fills `plain` with the initial values of one tensor. Weights are normal with variance 2 /
/// fan_in, which preserves the variance through a following ReLU (He et al., "Delving deep into
/// rectifiers", 2015), or 1 / fan_in; both are cut at two standard deviations. Scales and running
/// variances are 1; biases, shifts and running means are 0.
void initial_values(const ParameterSpec& spec, bool keeps_variance, std::uint64_t seed,
                    std::span<float> plain);

/// Whether a node's weights preserve the variance. Linear layers except the last one do, and
/// convolutions in front of batch norm. Convolutions with a bias do not, as in tf_cnn_benchmarks:
/// max pools raise the variance about as much as ReLUs lower it, and nets without batch norm have
/// both.
bool keeps_variance(const Graph& graph, NodeId node);

/// Writes initial values into all parameters and buffers of `executable`, which was compiled from
/// `graph`. The device is idle.
void initialise(Executable& executable, const Graph& graph, std::uint64_t seed);

}  // namespace penstock
