// SPDX-License-Identifier: Apache-2.0
// Why a training loop waits for a loader: the loader cannot make as many batches as are trained, or
// it makes them at the wrong time. What waits look like, in words, and the settings of PyTorch's
// DataLoader against them. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/record/run_result.h"
#include "bench/record/wait_spread.h"

namespace penstock {

enum class WaitCause : unsigned char {
  none,     ///< no loader, no cost, or none of the following
  work,     ///< it makes fewer batches than the device trains
  in_turn,  ///< it makes each batch while the device has nothing to do
  uneven,   ///< it makes enough on average, but some batches come late
  edges,    ///< the first batch of each epoch comes late
  growing   ///< batches come later and later
};

/// Of PyTorch's DataLoader; -1: not known.
struct LoaderSettings {
  std::int32_t workers = -1, prefetch_factor = -1, persistent = -1, in_order = -1;

  bool operator==(const LoaderSettings&) const = default;
};
/// Their names in DataLoader.
inline constexpr std::array<std::pair<std::string_view, std::int32_t LoaderSettings::*>, 4>
    kLoaderSettings{{{"num_workers", &LoaderSettings::workers},
                     {"prefetch_factor", &LoaderSettings::prefetch_factor},
                     {"persistent_workers", &LoaderSettings::persistent},
                     {"in_order", &LoaderSettings::in_order}}};

struct LoaderWaits : LoaderSettings {
  WaitCause cause = WaitCause::none;
  /// Does one late batch hold back others that are ready?
  bool is_held_back() const { return workers > 1 && in_order == 1 && held_back_percent >= 60; }
  // Over steps that are at no edge of an epoch:
  WaitSpread spread;
  std::optional<WaitGrowth> growth{};
  // Of cause edges: a step within an epoch, how much longer the first one takes, the epoch's steps.
  double steady_ms = 0, edge_longer_ms = 0, steps_per_epoch = 0;
  double held_back_percent = 0;  ///< of the waiting for a batch, a later one was there
  /// Of the time for samples, they waited for a processor; 0 unless loading is the bottleneck.
  double processor_percent = 0;
  double made_in_turn_ms = 0;  ///< the time in which the process that asks for a batch makes it
};

/// "none", "work", "in_turn", "uneven", "edges", "growing".
std::string_view to_string(WaitCause cause);
/// "The first batch of each epoch": the beginning of a headline. Empty for work and none.
std::string_view subject_of(WaitCause cause);
/// How the waits are spread, in a sentence; empty for work and none.
std::string sentence_of(const LoaderWaits& waits);

/// A change of a setting that makes batches come in time.
struct LoaderChange {
  std::string change;    ///< "prefetch_factor=14"
  std::int32_t now = 0;  ///< its present value
};
/// Those against the cause, if there are any. `step_ms`: of a step that waits for nothing.
std::vector<LoaderChange> changes_against(const LoaderWaits& waits, double step_ms);
/// The changes, such as "prefetch_factor=12 (now 1) or in_order=False", or what else removes the
/// cause. Empty if there is none.
std::string remedy_of(const LoaderWaits& waits, double step_ms);
/// What else removes the cause.
std::string_view usual_remedy(WaitCause cause);

/// Do workers wait for one lock for so long that more of them would not load faster? `percent`: of
/// their time; one lock that is never free makes n workers wait for (n - 1) / n of it.
inline bool are_held_up_by_lock(double percent, std::int32_t workers) {
  return percent > (workers > 1 ? 50.0 * (workers - 1) / workers : 50);
}

nlohmann::ordered_json to_json(const LoaderWaits& waits);

/// What one run with a loader tells of its waits.
LoaderWaits waits_of(const RunResult& result);
/// What a run with a loader answers, in a sentence: the share of the time in which the device
/// waited, the cause, and what would help how much. Empty if it did not record waits.
std::string describe_waits(const RunResult& result);

}  // namespace penstock
