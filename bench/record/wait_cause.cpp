// SPDX-License-Identifier: Apache-2.0
#include "bench/record/wait_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock {

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
          "Within an epoch a step takes {:.1f} ms; the first one of each {:.0f} "
          "takes {:.0f} ms longer{}.",
          waits.steady_ms, waits.steps_per_epoch, waits.edge_longer_ms,
          waits.workers > 0 && waits.persistent == 0
              ? ", because the workers end with the epoch and start anew"
              : "");
    case WaitCause::in_turn:
      return fmt::format(
          "The process that asks for a batch {}, in {:.0f} ms, and no step is "
          "computed meanwhile.",
          waits.workers > 0 ? "chooses samples for the next one and copies it" : "also makes it",
          waits.made_in_turn_ms);
    case WaitCause::uneven:
      return fmt::format(
          "{}, but not one for each step: {}{}.",
          waits.is_held_back() ? "Its workers could make enough batches"
                               : "Alone the loader makes enough batches",
          to_string(waits.spread),
          waits.is_held_back()
              ? fmt::format(
                    "; in {:.0f} % of the time in which a batch was waited for, a later one was "
                    "ready and had to stay behind it",
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

}  // namespace penstock
