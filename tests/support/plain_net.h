// SPDX-License-Identifier: Apache-2.0
// Any graph in plain loops of double: the numbers that backends have to reproduce. One thread, no
// vendor, no cleverness.
//
// What trainer/ leaves open is settled here:
// - Only the first `valid` images are computed. Batch norm in training, too, knows only those;
//   training batches are always full, so no backend has to agree on that.
// - An image counts for top k when fewer than k logits are greater than its label's.
// - Dropout drops in training only; running statistics change in training only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/backend.h"
#include "trainer/graph.h"

namespace penstock {

using PlainTensors = std::vector<std::vector<double>>;

/// Each tensor in plain order.
struct PlainWeights {
  PlainTensors parameters;  ///< as Graph::parameters() lists them
  PlainTensors buffers;     ///< as Graph::buffers() lists them
};

/// What initialise() writes.
PlainWeights plain_initial_weights(const Graph& graph, std::uint64_t seed);

/// Bytes as a feeder leaves them: [N, H, W, C] and [N].
struct PlainBatch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::int32_t valid = 0;
};

struct PlainRun {
  Phase phase = Phase::train;
  std::uint64_t seed = 1;  ///< of dropout
  std::int64_t step = 0;
  /// Applied to every activation, to every gradient of one, and to the weights of convolutions and
  /// linear layers: simulates a shorter type. May be empty.
  std::function<double(double)> rounding{};
};

struct PlainStep {
  std::vector<double> logits;  ///< [valid, classes]
  double loss = 0;             ///< mean cross-entropy; 0 when forward only, as top1 and top5
  std::int32_t top1 = 0, top5 = 0;
  PlainTensors gradients;  ///< of all parameters; empty unless training
  PlainTensors buffers;    ///< running statistics after the step
};

PlainStep run_plain(const Graph& graph, const PlainWeights& weights, const PlainBatch& batch,
                    const PlainRun& run);

}  // namespace penstock
