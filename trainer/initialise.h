// SPDX-License-Identifier: Apache-2.0
// First weights, the same on every backend: a function of the seed and the parameter's name.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/backend.h"

namespace penstock {

/// Fills `plain` with first values of one tensor. Weights: normal with variance 2 / fan_in, which
/// keeps the variance of what passes a ReLU behind them (He et al., "Delving deep into rectifiers",
/// 2015), or 1 / fan_in, cut at two standard deviations. Scales and running variances are 1,
/// biases, shifts and running means 0.
void initial_values(const ParameterSpec& spec, bool keeps_variance, std::uint64_t seed,
                    std::span<float> plain);

/// Whether a node's weights keep the variance: linear layers but the last and convolutions in front
/// of batch norm do. Convolutions with a bias do not, as in tf_cnn_benchmarks: max pools raise the
/// variance about as much as ReLUs lower it, and nets without batch norm have both.
bool keeps_variance(const Graph& graph, NodeId node);

/// Writes first values into all
/// parameters and buffers of `executable`. `graph` is what it was compiled from. The device is
/// idle.
void initialise(Executable& executable, const Graph& graph, std::uint64_t seed);

}  // namespace penstock
