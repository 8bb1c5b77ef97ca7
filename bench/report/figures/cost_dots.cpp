// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr double kNarrow = 520;  // a narrower figure has labels and values above its marks
constexpr std::string_view kTitle = "Share of the device's speed that each row loses";

std::string value_text(const CostDot& dot) {
  const std::string value = fixed_text(dot.percent.value, 1) + " %";
  return has_interval(dot.percent) ? value + " " + interval_text(dot.percent, 1) : value;
}

/// The ends of the axis. They include all measured values, and intervals unless these would squeeze
/// the values into a corner.
std::pair<double, double> ends_of(const std::vector<CostDot>& dots) {
  double low = 0, high = 1;
  for (const CostDot& dot : dots) {
    std::vector<double> values = dot.rounds;
    values.push_back(dot.percent.value);
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const double reach = high - low;
  double least = low, most = high;
  for (const CostDot& dot : dots) {
    if (!has_interval(dot.percent)) continue;
    least = std::min(least, std::max(dot.percent.low, low - 0.4 * reach));
    most = std::max(most, std::min(dot.percent.high, high + 0.4 * reach));
  }
  return {least - 0.03 * reach, most + 0.03 * reach};
}

std::vector<LegendEntry> legend_of(const std::vector<CostDot>& dots) {
  std::vector<LegendEntry> entries{{"starvation", "the cost in the table"},
                                   {"starvation faint", "each round"}};
  const auto any = [&](bool is_spread) {
    return std::ranges::any_of(dots, [is_spread](const CostDot& dot) {
      return dot.percent.is_spread == is_spread && dot.percent.low < dot.percent.high;
    });
  };
  if (any(false)) entries.push_back({"whisker", "95 % interval", true});
  if (any(true)) {
    entries.push_back(
        {"whisker", any(false) ? "with '..': lowest to highest round" : "lowest to highest round",
         true});
  }
  return entries;
}

}  // namespace

std::string cost_dots_figure(const std::vector<CostDot>& dots, const FigureSize& size) {
  if (dots.empty()) return sentence_figure(size, kTitle, "No row has an input cost.");
  const bool narrow = size.width < kNarrow;
  const double row = narrow ? 40 : 26, top = 4;
  double labels = 0, values = 0;
  std::string description;
  for (const CostDot& dot : dots) {
    labels = std::max(labels, text_width(dot.label, Svg::kText) + 16);
    values = std::max(values, text_width(value_text(dot), Svg::kText) + 16);
    description += fmt::format("{}: {}. ", dot.label, value_text(dot));
  }
  labels = std::min(labels, size.width * 0.4);
  const auto [low, high] = ends_of(dots);
  const Scale x(low, high, narrow ? 6 : labels, size.width - (narrow ? 6 : values));
  const double bottom = top + row * static_cast<double>(dots.size()) + 2;
  Svg svg(size, std::string(kTitle), description);
  horizontal_axis(svg, x, top, bottom, {"% of the device's speed lost"});
  for (std::size_t i = 0; i < dots.size(); ++i) {
    const CostDot& dot = dots[i];
    const double line = top + row * static_cast<double>(i);
    const double y = line + (narrow ? 27 : row / 2);
    const std::string value = value_text(dot);
    std::vector<Point> rounds;
    for (const double percent : dot.rounds) {
      if (std::isfinite(percent)) rounds.push_back({x(percent), y});
    }
    const double reach = narrow ? 9 : row / 2;  // keeps letters clear of the line at 0
    svg.line({x(0), y - reach}, {x(0), y + reach}, "axis");
    svg.dots(rounds, 3, "starvation faint");
    whisker(svg, x, dot.percent.low, dot.percent.high, y);
    svg.circle({x(dot.percent.value), y}, 4.5, "starvation", dot.label + ": " + value);
    const double text_line = narrow ? line + 14 : y + 4;
    const double room = narrow ? size.width - text_width(value, Svg::kText) - 12 : labels - 12;
    svg.text({0, text_line}, shortened(dot.label, room, Svg::kText), "halo");
    svg.text({size.width, text_line}, value, "halo", Anchor::end);
  }
  const double end = legend(svg, 0, bottom + kAxisHeight, size.width, legend_of(dots));
  return std::move(svg).finish(end + 4);
}

}  // namespace penstock::report
