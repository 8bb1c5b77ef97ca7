// SPDX-License-Identifier: Apache-2.0
// First weights, the same on every backend: a function of the seed and the parameter's name.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/backend.h"

namespace penstock {

/// Fills `plain` with first values of one tensor. Weights in front of a ReLU: normal with variance
/// 2 / fan_in (He et al., "Delving deep into rectifiers", 2015), cut at two standard deviations;
/// the last linear layer: normal with variance 1 / fan_in, cut the same way. Scales and running
/// variances are 1, biases, shifts and running means 0.
void initial_values(const ParameterSpec& spec, bool feeds_relu, std::uint64_t seed,
                    std::span<float> plain);

/// Writes first values into all parameters and buffers of `executable`. `graph` is what it was
/// compiled from. The device is idle.
void initialise(Executable& executable, const Graph& graph, std::uint64_t seed);

}  // namespace penstock
