// SPDX-License-Identifier: Apache-2.0
// Why a training loop waits for a loader of the user's: the loader cannot make as many batches as
// are trained, or it makes them at the wrong time. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/record/sweep_result.h"
#include "bench/record/wait_spread.h"

namespace penstock::isolate {

struct Isolation;

enum class WaitCause : unsigned char {
  none,     ///< no loader, no cost, or none of the following
  work,     ///< it makes fewer batches than the device trains
  in_turn,  ///< it makes each batch while the device has nothing to do
  uneven,   ///< it makes enough on average, but some batches come late
  edges     ///< the first batch of each epoch comes late
};

struct LoaderWaits {
  WaitCause cause = WaitCause::none;
  WaitSpread spread;  ///< over steps that are at no edge of an epoch
  // Settings of PyTorch's DataLoader; -1: not known.
  std::int32_t workers = -1, prefetch_factor = -1, persistent = -1, in_order = -1;
};

/// Call when cost, epochs, supply and diagnosis of `found` are known. `found` has a loader.
LoaderWaits find_waits(const Isolation& found);

/// "none", "work", "in_turn", "uneven", "edges".
std::string_view to_string(WaitCause cause);
/// "The first batch of each epoch": the beginning of a headline. Empty for work and none.
std::string_view subject_of(WaitCause cause);
/// How the waits are spread, in a sentence; empty for work and none.
std::string sentence_of(const LoaderWaits& waits, const Isolation& found);

/// The mean of a fact over the usable runs that have it; none: no run has it.
std::optional<double> mean_fact(const Row& row, const std::string& name);

}  // namespace penstock::isolate
