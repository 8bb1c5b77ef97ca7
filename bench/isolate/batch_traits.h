// SPDX-License-Identifier: Apache-2.0
// Three costs of a loader that its stages do not show: many arrays in a batch, padding, and a data
// set that is pickled for each worker. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/record/sweep_result.h"

namespace penstock::isolate {

struct Isolation;

/// What the loader's process says of its batches and workers. 0: nothing.
struct BatchTraits {
  double arrays = 0;                       ///< in a batch
  double padding_percent = 0;              ///< of the positions of an entry
  std::string padded{};                    ///< the entry
  double pickled_mb = 0, pickling_ms = 0;  ///< for each worker that is not forked
};

BatchTraits find_traits(const Row& coupled);

/// Is the process that asks for batches the bottleneck, because it unpacks many arrays?
/// `found` has a diagnosis.
bool unpacks_many_arrays(const Isolation& found);

/// A sentence for each of the three that is worth one.
std::vector<std::string> trait_sentences(const Isolation& found);

}  // namespace penstock::isolate
