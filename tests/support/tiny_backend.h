// SPDX-License-Identifier: Apache-2.0
// A trainer that is small enough to read: softmax regression in plain loops, on the host's memory.
// It has every feature of larger ones: its own order of weights, gradients, running statistics,
// dropout that depends on the step, accuracies, and every phase.
#pragma once

#include "trainer/backend.h"
#include "trainer/model.h"

namespace penstock {

/// A step takes a millisecond of device time. Option nonfinite_at=K: the loss of step K (from 0) is
/// NaN.
extern constinit const BackendEntry tiny_backend;

/// One linear layer over 8x8x3 images. It subtracts the channels' means from its input (means of
/// the batch in training, running means in evaluation), and drops a fifth of the input.
extern constinit const ModelEntry tiny_model;

}  // namespace penstock
