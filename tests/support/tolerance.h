// SPDX-License-Identifier: Apache-2.0
// How far a backend's numbers may lie from those of exact arithmetic, derived from the graph and
// the type; and distances between tensors.
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

/// Of one precision: the relative error of one rounding of an activation or operand, and of one
/// addition.
struct Roundoff {
  Precision precision;
  double operand, sum;
};
/// Half a unit in the last place: 24 significant bits of f32, 11 of tf32 and f16, 8 of bf16. Sums
/// are f32 in all of them.
inline constexpr Roundoff kRoundoffs[] = {{Precision::f32, 0x1p-24, 0x1p-24},
                                          {Precision::tf32, 0x1p-11, 0x1p-24},
                                          {Precision::f16, 0x1p-11, 0x1p-24},
                                          {Precision::bf16, 0x1p-9, 0x1p-24}};

/// Relative errors (in the L2 norm of a tensor) that a correct backend stays below.
struct Tolerance {
  double forward, gradient;
};

/// Errors of single roundings are independent, so they add up like a random walk: sqrt(K) of them
/// along a sum of K terms, sqrt(D) along a path of D nodes, twice that there and back. Batch norm
/// divides by deviations that may be smaller than the values, Linear and Conv2d sum terms that
/// cancel: a factor of 8 covers how that amplifies the errors of operands. The plain executor, when
/// it rounds to bf16, uses up to 0.45 of the result in the graphs of small_graphs(), 0.8 where they
/// bend.
///
/// A ReLU or maximum whose inputs lie within the error e of a tie passes its gradient on the other
/// way. Of values spread like a normal distribution a share of 0.8 e lies within e of 0, and a
/// tensor with a share p of its elements wrong is off by sqrt(p). Where fewer than a tenth of an
/// element is expected there, none is.
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

/// What the errors of each tensor are relative to: its norm, or, for those whose elements cancel
/// (biases in front of a batch norm), the norm of as many elements of the size that is usual in all
/// tensors together.
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
