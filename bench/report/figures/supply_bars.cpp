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

constexpr std::string_view kTitle = "Supply against demand";
constexpr double kBar = 22, kHead = 22, kGap = 16, kMostTimes = 1.6;

bool has_rates(const SupplyBar& bar) {
  return std::isfinite(bar.supply_img_per_s.value) && bar.supply_img_per_s.value >= 0 &&
         std::isfinite(bar.demand_img_per_s) && bar.demand_img_per_s > 0;
}

std::string value_text(const SupplyBar& bar) {
  return fmt::format("{} of {} img/s ({} %)", fixed_text(bar.supply_img_per_s.value, 0),
                     fixed_text(bar.demand_img_per_s, 0),
                     fixed_text(100 * bar.supply_img_per_s.value / bar.demand_img_per_s, 0));
}

void draw_bar(Svg& svg, const SupplyBar& bar, const Scale& x, double top) {
  const double supply = bar.supply_img_per_s.value, demand = bar.demand_img_per_s;
  const double used = std::min(supply, demand);
  const std::string title = fmt::format("{}: {}", bar.label, value_text(bar));
  svg.box({x(0), top, x(used) - x(0), kBar}, "device", title);
  if (supply < demand) svg.box({x(used), top, x(demand) - x(used), kBar}, "starvation", title);
  if (supply > demand) svg.box({x(used), top, x(supply) - x(used), kBar}, "gain", title);
  if (!x.holds(supply)) {  // torn before its end
    const double at = x(x.high()) - 12;
    svg.line({at - 4, top + kBar + 2}, {at + 4, top - 2}, "tear");
  }
  whisker(svg, x, bar.supply_img_per_s.low, bar.supply_img_per_s.high, top + kBar / 2);
  svg.line({x(demand), top - 4}, {x(demand), top + kBar + 4}, "demand");
}

std::vector<LegendEntry> legend_of(const std::vector<SupplyBar>& bars) {
  std::vector<LegendEntry> entries{{"device", "supplied"}};
  const auto any = [&](const auto& holds) { return std::ranges::any_of(bars, holds); };
  const auto value = [](const SupplyBar& bar) { return bar.supply_img_per_s.value; };
  if (any([&](const auto& bar) { return value(bar) < 0.999 * bar.demand_img_per_s; })) {
    entries.push_back({"starvation", "missing"});
  }
  if (any([&](const auto& bar) { return value(bar) > 1.001 * bar.demand_img_per_s; })) {
    entries.push_back({"gain", "more than is wanted"});
  }
  entries.push_back({"demand", "what the devices could train", true});
  return entries;
}

}  // namespace

std::string supply_bars_figure(const std::vector<SupplyBar>& all, const FigureSize& size) {
  std::vector<SupplyBar> bars = all;
  std::erase_if(bars, [](const SupplyBar& bar) { return !has_rates(bar); });
  if (bars.empty()) return sentence_figure(size, kTitle, "No feeder was measured with a ceiling.");
  double most = 0, largest = 0;
  std::string description;
  for (const SupplyBar& bar : bars) {
    const double supply = bar.supply_img_per_s.value, limit = kMostTimes * bar.demand_img_per_s;
    most = std::max({most, bar.demand_img_per_s, std::min(supply, limit)});
    largest = std::max(largest, supply);
    description += fmt::format("{}: {}. ", bar.label, value_text(bar));
  }
  const Scale x(0, 1.03 * most, 0.5, size.width - 0.5);
  Svg svg(size, std::string(kTitle), description);
  double y = 0;
  for (const SupplyBar& bar : bars) {
    const std::string value = value_text(bar);
    const double room = size.width - text_width(value, Svg::kText) - 12;
    svg.text({0, y + 14}, shortened(bar.label, room / 1.15, Svg::kText), "strong");
    svg.text({size.width, y + 14}, value, "", Anchor::end);
    draw_bar(svg, bar, x, y + kHead);
    y += kHead + kBar + kGap;
  }
  y -= kGap - 6;
  horizontal_axis(svg, x, y, y, {largest > 1.03 * most ? "img/s; torn bars are longer" : "img/s"});
  return std::move(svg).finish(legend(svg, 0, y + kAxisHeight, size.width, legend_of(bars)) + 4);
}

}  // namespace penstock::report
