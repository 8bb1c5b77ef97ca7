// SPDX-License-Identifier: Apache-2.0
// Computes any graph in plain loops of double: the reference numbers for backends. It uses one
// thread and no vendor's library.
//
// It defines what trainer/ leaves open:
// - It computes only the first `valid` images. Batch norm in training uses only these, too.
//   Training batches are always full, so backends need not agree on that.
// - An image counts for top k if fewer than k logits are greater than its label's logit.
// - Dropout drops elements only in training; running statistics change only in training.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/backend.h"
#include "trainer/graph.h"

namespace penstock {

using PlainTensors = std::vector<std::vector<double>>;

/// Each tensor is in plain order.
struct PlainWeights {
  PlainTensors parameters;  ///< as Graph::parameters() lists them
  PlainTensors buffers;     ///< as Graph::buffers() lists them
};

/// The weights that initialise() writes.
PlainWeights plain_initial_weights(const Graph& graph, std::uint64_t seed);

/// Bytes in a feeder's layout: [N, H, W, C] and [N].
struct PlainBatch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::int32_t valid = 0;
};

struct PlainRun {
  Phase phase = Phase::train;
  std::uint64_t seed = 1;  ///< for dropout
  std::int64_t step = 0;
  /// Applied to every activation, to the gradient of every activation, and to the weights of
  /// convolutions and linear layers: simulates a shorter type. May be empty.
  std::function<double(double)> rounding{};
};

struct PlainStep {
  std::vector<double> logits;  ///< [valid, classes]
  double loss = 0;             ///< mean cross-entropy; loss, top1 and top5 are 0 if forward only
  std::int32_t top1 = 0, top5 = 0;
  PlainTensors gradients;  ///< of all parameters; empty unless training
  PlainTensors buffers;    ///< running statistics after the step
};

PlainStep run_plain(const Graph& graph, const PlainWeights& weights, const PlainBatch& batch,
                    const PlainRun& run);

}  // namespace penstock
