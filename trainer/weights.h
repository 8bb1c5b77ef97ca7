// SPDX-License-Identifier: Apache-2.0
// Weights from one executable to another one of the same graph.
#pragma once

#include "trainer/backend.h"

namespace penstock {

/// Parameters and running statistics of `from` become those of `to`, whose batch may be another
/// one. Both devices are idle.
void copy_weights(Executable& from, Executable& to);

}  // namespace penstock
