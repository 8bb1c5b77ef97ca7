// SPDX-License-Identifier: Apache-2.0
// How far a backend's numbers may differ from exact arithmetic, derived from the graph and the
// type; and distances between tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/plain_net.h"
#include "trainer/backend.h"
#include "trainer/graph.h"

namespace penstock {

/// For one precision: the relative error of rounding an activation or operand once, and of one
/// addition.
struct Roundoff {
  Precision precision;
  double operand, sum;
};
/// Half a unit in the last place: 24 significant bits of f32, 11 of tf32 and f16, 8 of bf16. All
/// precisions sum in f32.
inline constexpr Roundoff kRoundoffs[] = {{Precision::f32, 0x1p-24, 0x1p-24},
                                          {Precision::tf32, 0x1p-11, 0x1p-24},
                                          {Precision::f16, 0x1p-11, 0x1p-24},
                                          {Precision::bf16, 0x1p-9, 0x1p-24}};

/// Relative errors (in the L2 norm of a tensor) that a correct backend does not exceed.
struct Tolerance {
  double forward, gradient;
};

/// Errors of single roundings are independent and grow like a random walk: by sqrt(K) along a sum
/// of K terms, by sqrt(D) along a path of D nodes, and twice that for forward and backward. Batch
/// norm divides by deviations that may be smaller than the values, and Linear and Conv2d sum terms
/// that cancel. Both amplify the errors of operands; a factor of 8 covers that. With bf16 rounding,
/// the plain executor uses up to 0.45 of the result in the graphs of small_graphs(), and 0.8 in
/// those with a ReLU or maximum.
///
/// If the inputs of a ReLU or maximum are within the error e of a tie, its gradient may pass on the
/// wrong side. Of normally distributed values, a share of 0.8 e is within e of 0. A tensor with a
/// share p of wrong elements has the error sqrt(p). If fewer than a tenth of an element is expected
/// there, none is assumed.
inline Tolerance tolerance_for(const Graph& graph, std::int32_t images, Precision precision) {
  const auto* const of =
      std::find_if(std::begin(kRoundoffs), std::end(kRoundoffs),
                   [&](const Roundoff& row) { return row.precision == precision; });
  PENSTOCK_ASSERT(of != std::end(kRoundoffs));
  double longest = 1, bending = 0;
  for (const Node& node : graph.nodes()) {
    const auto elements = static_cast<double>(node.shape.elements());
    longest =
        std::max({longest, elements / node.shape.channels * images, node.forward_macs / elements});
    if (std::holds_alternative<Relu>(node.op) || std::holds_alternative<MaxPool>(node.op)) {
      bending += elements * images;
    }
  }
  const double depth = static_cast<double>(graph.nodes().size());
  const double error = (8 * of->operand + of->sum * std::sqrt(longest)) * std::sqrt(2 * depth);
  const double wrong = 0.8 * error * bending < 0.1 ? 0 : 0.8 * error;
  return {error, error + std::sqrt(wrong)};
}

inline double norm(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

inline double distance(std::span<const double> a, std::span<const double> b) {
  PENSTOCK_ASSERT(a.size() == b.size());
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

/// The scale of each tensor's errors: its norm. For tensors whose elements cancel (biases before a
/// batch norm), it is the norm of the same number of elements of the usual size in all tensors
/// together.
inline std::vector<double> scales_of(const PlainTensors& tensors) {
  double squares = 0, elements = 0;
  for (const std::vector<double>& tensor : tensors) {
    squares += std::pow(norm(tensor), 2);
    elements += static_cast<double>(tensor.size());
  }
  std::vector<double> scales;
  for (const std::vector<double>& tensor : tensors) {
    scales.push_back(
        std::max(norm(tensor), std::sqrt(squares / elements * static_cast<double>(tensor.size()))));
  }
  return scales;
}

}  // namespace penstock
