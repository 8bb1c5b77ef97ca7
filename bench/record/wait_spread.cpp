// SPDX-License-Identifier: Apache-2.0
#include "bench/record/wait_spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "bench/statistics/series.h"

namespace penstock {

WaitSpread spread_of_waits(std::vector<double> waits_ms) {
  constexpr double kMost = 0.8;
  std::ranges::sort(waits_ms, std::greater());
  const double all = std::accumulate(waits_ms.begin(), waits_ms.end(), 0.0);
  WaitSpread spread;
  if (!(all > 0)) return spread;
  std::size_t late = 0;
  double held = 0;
  while (held < kMost * all) held += waits_ms[late++];
  const auto count = static_cast<double>(late), steps = static_cast<double>(waits_ms.size());
  spread.late_percent = 100 * count / steps;
  spread.late_ms = held / count;
  spread.other_ms = steps > count ? (all - held) / (steps - count) : 0;
  return spread;
}

std::string to_string(const WaitSpread& spread) {
  if (spread.is_even()) return fmt::format("{:.1f} ms before most steps", spread.late_ms);
  return fmt::format("{:.0f} % of the steps wait {:.0f} ms each, the others {:.1f} ms",
                     spread.late_percent, spread.late_ms, spread.other_ms);
}

std::optional<WaitGrowth> growth_of_waits(std::span<const double> waits_ms) {
  constexpr std::size_t kFewest = 60, kQuarters = 4, kBlock = 5;
  constexpr double kGrows = 2, kHidden = 0.05;  // hidden by a queue that drains
  if (waits_ms.size() < kFewest) return std::nullopt;
  const double hidden_ms = kHidden * statistics::mean(waits_ms.last(waits_ms.size() / 3));
  while (waits_ms.size() > kFewest / 2 && statistics::mean(waits_ms.first(kBlock)) < hidden_ms) {
    waits_ms = waits_ms.subspan(1);
  }
  const std::size_t third = waits_ms.size() / 3, quarter = third / kQuarters;
  const auto first = waits_ms.first(third), last = waits_ms.last(third);
  const WaitGrowth growth{statistics::mean(first), statistics::mean(last)};
  double most = growth.first_ms * kGrows, least = growth.last_ms;  // of quarters
  for (std::size_t each = 0; each < kQuarters; ++each) {
    most = std::max(most, statistics::mean(first.subspan(each * quarter, quarter)));
    least = std::min(least, statistics::mean(last.subspan(each * quarter, quarter)));
  }
  return least > std::max(most, statistics::mean(waits_ms)) ? std::optional(growth) : std::nullopt;
}

std::string to_string(const WaitGrowth& growth) {
  return fmt::format("from {:.1f} ms at first to {:.1f} ms in the end", growth.first_ms,
                     growth.last_ms);
}

}  // namespace penstock
