// SPDX-License-Identifier: Apache-2.0
#include "bench/record/wait_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/record/epoch_edges.h"

namespace penstock {
namespace {

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

std::string_view to_string(WaitCause cause) {
  constexpr std::array<std::string_view, 6> kWords = {"none",   "work",  "in_turn",
                                                      "uneven", "edges", "growing"};
  return kWords[static_cast<std::size_t>(cause)];
}

std::string_view subject_of(WaitCause cause) {
  constexpr std::array<std::string_view, 6> kSubjects = {"",
                                                         "",
                                                         "Loading a batch between two steps",
                                                         "Uneven loading",
                                                         "The first batch of each epoch",
                                                         "Loading that becomes slower"};
  return kSubjects[static_cast<std::size_t>(cause)];
}

std::string sentence_of(const LoaderWaits& waits) {
  switch (waits.cause) {
    case WaitCause::edges:
      return fmt::format(
          "Within an epoch a step takes {:.1f} ms; the first one of each {:.0f} takes {:.0f} ms "
          "longer{}.",
          waits.steady_ms, waits.steps_per_epoch, waits.edge_longer_ms,
          waits.workers > 0 && waits.persistent == 0
              ? ", because the workers end with the epoch and start anew"
              : "");
    case WaitCause::in_turn:
      return fmt::format(
          "The process that asks for a batch {}, in {:.0f} ms, and no step is computed meanwhile.",
          waits.workers > 0 ? "chooses samples for the next one and copies it" : "also makes it",
          waits.made_in_turn_ms);
    case WaitCause::uneven:
      return fmt::format("{}, but not one for each step: {}{}.",
                         waits.is_held_back() ? "Its workers could make enough batches"
                                              : "Alone the loader makes enough batches",
                         to_string(waits.spread),
                         waits.is_held_back()
                             ? fmt::format("; in {:.0f} % of the time in which a batch was waited "
                                           "for, a later one was ready and had to stay behind it",
                                           waits.held_back_percent)
                             : "");
    case WaitCause::growing:
      return fmt::format("The wait for a batch grows {}.", to_string(*waits.growth));
    case WaitCause::none:
    case WaitCause::work:
      return {};
  }
  return {};
}

std::vector<LoaderChange> changes_against(const LoaderWaits& waits, double step_ms) {
  std::vector<LoaderChange> changes;
  if (waits.cause == WaitCause::edges && waits.workers > 0 && waits.persistent == 0) {
    changes.push_back({"persistent_workers=True", 0});
  }
  if (waits.cause != WaitCause::uneven) return changes;
  if (waits.prefetch_factor > 0) {
    const auto hides = static_cast<std::int32_t>(std::ceil(waits.spread.late_ms / step_ms)) + 1;
    changes.push_back(
        {fmt::format("prefetch_factor={}", std::clamp(2 * hides, 4, 64)), waits.prefetch_factor});
  }
  if (waits.workers > 1 && waits.in_order == 1) {
    changes.insert(waits.is_held_back() ? changes.begin() : changes.end(), {"in_order=False", 1});
  }
  return changes;
}

std::string_view usual_remedy(WaitCause cause) {
  constexpr std::array<std::string_view, 6> kRemedies = {
      "",
      "a loader that makes batches faster, or in more workers",
      "batches made in a thread or process of their own, one ahead of the loop",
      "a longer queue of batches, or samples of even size",
      "a beginning of an epoch that costs nothing (look at samplers, shuffling, and what the data "
      "set opens)",
      "samples that stay as fast as at first (look at what grows: lists, caches, open files, "
      "memory that is swapped)"};
  return kRemedies[static_cast<std::size_t>(cause)];
}

std::string remedy_of(const LoaderWaits& waits, double step_ms) {
  std::string text;
  for (const LoaderChange& change : changes_against(waits, step_ms)) {
    text += (text.empty() ? "" : " or ") + change.change +
            (change.now > 1 ? fmt::format(" (now {})", change.now) : "");
  }
  return text.empty() ? std::string(usual_remedy(waits.cause)) : text;
}

nlohmann::ordered_json to_json(const LoaderWaits& waits) {
  nlohmann::ordered_json json{{"cause", to_string(waits.cause)},
                              {"late_percent", waits.spread.late_percent},
                              {"late_ms", waits.spread.late_ms},
                              {"other_ms", waits.spread.other_ms},
                              {"held_back_percent", waits.held_back_percent}};
  if (waits.growth) {
    json["first_third_ms"] = waits.growth->first_ms;
    json["last_third_ms"] = waits.growth->last_ms;
  }
  return json;
}

LoaderWaits waits_of(const RunResult& result) {
  constexpr double kKeepsUp = 0.02, kMostly = 0.5;
  LoaderWaits waits;
  for (const auto& [name, member] : kLoaderSettings) {
    const auto fact = fact_of(result, fmt::format("loader_{}", name));
    waits.*member = static_cast<std::int32_t>(fact.value_or(-1));
  }
  waits.held_back_percent = fact_of(result, "loader_held_back_percent").value_or(0);
  const double waited_ms = sum_of(result.starved_ms), steps_ms = sum_of(result.step_ms);
  if (result.starved_ms.empty() || !(waited_ms >= kKeepsUp * steps_ms)) return waits;
  const std::vector<double> within = without_edges(result, result.starved_ms);
  waits.spread = spread_of_waits(within);
  waits.growth = growth_of_waits(within);
  if (sum_of(within) < kMostly * waited_ms) {
    waits.cause = WaitCause::edges;
  } else if (waits.growth) {
    waits.cause = WaitCause::growing;
  } else if (waits.workers == 0) {
    waits.cause = WaitCause::in_turn;
  } else {
    waits.cause = waits.spread.is_even() ? WaitCause::work : WaitCause::uneven;
  }
  return waits;
}

std::string describe_waits(const RunResult& result) {
  const double waited_ms = sum_of(result.starved_ms), steps_ms = sum_of(result.step_ms);
  if (!(steps_ms > 0) || result.starved_ms.empty()) return {};
  const LoaderWaits waits = waits_of(result);
  const double percent = 100 * waited_ms / steps_ms;
  if (waits.cause == WaitCause::none) {
    return fmt::format("the loader keeps up: the device waited for it for {:.1f} % of the time",
                       percent);
  }
  std::string shape;
  switch (waits.cause) {
    case WaitCause::edges:
      shape = "mostly for the first batch of each epoch";
      break;
    case WaitCause::growing:
      shape = fmt::format("in waits that grow {}", to_string(*waits.growth));
      break;
    case WaitCause::in_turn:
      shape = fmt::format("{}, because its batches are made between two steps",
                          to_string(waits.spread));
      break;
    default:
      shape = to_string(waits.spread);
      if (waits.cause == WaitCause::work && waits.workers > 0) {
        shape += fmt::format(
            ", because its {} fewer batches than are trained",
            waits.workers == 1 ? "worker makes" : fmt::format("{} workers make", waits.workers));
      }
  }
  const double step_ms = (steps_ms - waited_ms) / static_cast<double>(result.step_ms.size());
  return fmt::format(
      "the device waited for the loader for {:.0f} % of the time, {}. Training would be up to "
      "{:.2f} times as fast with {}; `penstock isolate` with the same loader measures it",
      percent, shape, steps_ms / std::max(1e-9, steps_ms - waited_ms),
      waits.cause == WaitCause::in_turn ? "num_workers=1 or more (now 0)"
                                        : remedy_of(waits, std::max(1e-3, step_ms)));
}

}  // namespace penstock
