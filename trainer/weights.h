// SPDX-License-Identifier: Apache-2.0
// Copies weights between two executables of the same graph.
#pragma once

#include "trainer/backend.h"

namespace penstock {

/// Copies the parameters and running statistics of `from` to `to`. The batch of `to` may differ.
/// Both devices are idle.
void copy_weights(Executable& from, Executable& to);

}  // namespace penstock
