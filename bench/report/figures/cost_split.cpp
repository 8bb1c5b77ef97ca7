// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "What the cost consists of";
constexpr double kBar = 24, kBold = 1.15;

struct Part {
  std::string_view name, classes;
  double value = 0;
  std::string text;  ///< for the legend
};

std::array<Part, 4> parts_of(const SplitBar& bar) {
  const int decimals = decimals_of(bar.total_ms);
  const auto text = [decimals](std::string_view name, const statistics::Estimate& estimate) {
    return fmt::format("{} {} ms {}", name, fixed_text(estimate.value, decimals),
                       interval_text(estimate, decimals));
  };
  return {Part{"starvation", "starvation", bar.starvation_ms.value,
               text("starvation", bar.starvation_ms)},
          Part{"transfer", "transfer", bar.transfer_ms.value, text("transfer", bar.transfer_ms)},
          Part{"interference", "interference", bar.interference_ms.value,
               text("interference", bar.interference_ms)},
          Part{"residual", "residual", bar.residual_ms,
               fmt::format("residual {} ms", fixed_text(bar.residual_ms, decimals))}};
}

/// The sums of the negative and of the positive parts.
std::pair<double, double> reach_of(const SplitBar& bar) {
  std::pair<double, double> reach;
  for (const Part& part : parts_of(bar)) {
    if (!std::isfinite(part.value)) continue;
    (part.value < 0 ? reach.first : reach.second) += part.value;
  }
  return reach;
}

void draw_parts(Svg& svg, const SplitBar& bar, const Scale& x, double top) {
  double below = 0, above = 0;
  for (const Part& part : parts_of(bar)) {
    if (!std::isfinite(part.value) || part.value == 0) continue;
    double& from = part.value < 0 ? below : above;
    svg.box({x(from), top, x(from + part.value) - x(from), kBar}, part.classes, part.text);
    from += part.value;
    if (part.value > 0) svg.line({x(from), top}, {x(from), top + kBar}, "edge");
  }
}

}  // namespace

std::string cost_split_figure(const std::vector<SplitBar>& bars, const FigureSize& size) {
  if (bars.empty()) return sentence_figure(size, kTitle, "No cost was found that could be split.");
  double low = 0, high = 0;
  std::string description;
  for (const SplitBar& bar : bars) {
    const auto [below, above] = reach_of(bar);
    low = std::min(low, below);
    high = std::max({high, above, std::isfinite(bar.total_ms.value) ? bar.total_ms.value : 0});
    description += fmt::format("{}: {} a step. ", bar.label, estimate_text(bar.total_ms, "ms"));
  }
  if (high <= low) high = low + 1;
  const double reach = high - low;
  const Scale x(low < 0 ? low - 0.02 * reach : 0, high + 0.02 * reach, 0.5, size.width - 0.5);
  Svg svg(size, std::string(kTitle), description);
  double y = 0;
  for (const SplitBar& bar : bars) {
    const std::string total = estimate_text(bar.total_ms, "ms a step");
    const double room = size.width - text_width(total, Svg::kText) * kBold - 12;
    svg.text({0, y + 14}, shortened(bar.label, room / kBold, Svg::kText), "strong");
    svg.text({size.width, y + 14}, total, "strong", Anchor::end);
    y += 22;
    draw_parts(svg, bar, x, y);
    svg.line({x(0), y - 3}, {x(0), y + kBar + 3}, "axis");
    std::vector<LegendEntry> entries;
    for (const Part& part : parts_of(bar)) entries.push_back({part.classes, part.text});
    y = legend(svg, 0, y + kBar + 6, size.width, entries) + 16;
  }
  return std::move(svg).finish(y - 10);
}

}  // namespace penstock::report
