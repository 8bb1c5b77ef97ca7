// SPDX-License-Identifier: Apache-2.0
// A trainer small enough to be read: softmax regression in plain loops, on the host's memory. It
// has all that larger ones have: weights in an order of its own, gradients, running statistics,
// dropout that depends on the step, accuracies, and every phase.
#pragma once

#include "trainer/backend.h"
#include "trainer/model.h"

namespace penstock {

/// A step takes a millisecond of device time. Option nonfinite_at=K: the loss of step K (from 0) is
/// not a number.
extern constinit const BackendEntry tiny_backend;

/// One linear layer over 8x8x3 images. The channels' means are subtracted from its input (those of
/// the batch in training, running ones in evaluation), and a fifth of the input is dropped.
extern constinit const ModelEntry tiny_model;

}  // namespace penstock
