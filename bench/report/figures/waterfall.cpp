// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "Time of a step, and what feeding adds to it";
constexpr double kNarrow = 520;  // a narrower figure has labels and values above its marks
constexpr double kBar = 18;

struct Layout {
  bool narrow = false;
  double labels = 0, values = 0;  ///< widths of the columns at either side
  double row = 30, top = 4;
  double bar_top(std::size_t index) const {
    return top + row * static_cast<double>(index) + (narrow ? 22 : (row - kBar) / 2);
  }
  double text_line(std::size_t index) const {
    return top + row * static_cast<double>(index) + (narrow ? 15 : row / 2 + 4);
  }
};

double value_of(const WaterfallBar& bar) { return bar.added_ms ? bar.added_ms->value : 0; }
double end_of(const WaterfallBar& bar) { return bar.from_ms + value_of(bar); }

std::string value_text(const WaterfallBar& bar) {
  if (!bar.added_ms) return "not measured";
  const std::string text =
      has_interval(*bar.added_ms)
          ? estimate_text(*bar.added_ms, "ms")
          : fixed_text(bar.added_ms->value, decimals_of(*bar.added_ms)) + " ms";
  return bar.whole || bar.added_ms->value < 0 ? text : "+" + text;
}

Layout layout_of(const Waterfall& waterfall, double width) {
  Layout layout;
  layout.narrow = width < kNarrow;
  for (const WaterfallBar& bar : waterfall.bars) {
    layout.labels = std::max(layout.labels, text_width(bar.label, Svg::kText) + 12);
    layout.values = std::max(layout.values, text_width(value_text(bar), Svg::kText) + 12);
  }
  layout.labels = std::min(layout.labels, width * 0.34);
  if (layout.narrow) layout.row = 50;
  return layout;
}

/// The ends of the axis. It begins at 0, unless all values differ by little compared with their
/// size.
std::pair<double, double> ends_of(const Waterfall& waterfall) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const WaterfallBar& bar : waterfall.bars) {
    if (!bar.added_ms) continue;
    const double from = bar.whole ? value_of(bar) : bar.from_ms;
    for (const double value :
         {from, end_of(bar), bar.from_ms + bar.added_ms->low, bar.from_ms + bar.added_ms->high}) {
      const double far = 3 * std::max(std::fabs(from), std::fabs(end_of(bar)));
      if (!std::isfinite(value) || std::fabs(value) > far) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (!(most > 0)) return {std::min(least, 0.0), 1};
  const bool zoom = least > 0 && most - least < 0.1 * most && most - least > 1e-6 * most;
  return {zoom ? least - 0.5 * (most - least) : std::min(least, 0.0), most + 0.03 * (most - least)};
}

void draw_bar(Svg& svg, const WaterfallBar& bar, const Scale& x, double top) {
  const std::string tooltip = bar.label + ": " + value_text(bar);
  const double low = std::max(x.low(), 0.0);
  if (bar.over_device) {
    svg.box({x(low), top, x(bar.from_ms) - x(low), kBar}, "device", tooltip);
  }
  if (!bar.added_ms) return;
  if (bar.whole) {
    svg.box({x(low), top, x(value_of(bar)) - x(low), kBar}, "device", tooltip);
  } else {
    const double width = x(end_of(bar)) - x(bar.from_ms);
    const std::string_view usual = value_of(bar) < 0 ? "gain" : "starvation";
    svg.box({x(bar.from_ms), top, width, kBar}, bar.classes.empty() ? usual : bar.classes, tooltip);
  }
  whisker(svg, x, bar.from_ms + bar.added_ms->low, bar.from_ms + bar.added_ms->high,
          top + kBar / 2);
}

/// If the axis does not begin at 0, bars that begin there are drawn torn.
void draw_tear(Svg& svg, const WaterfallBar& bar, const Scale& x, double top) {
  if (!(x.low() > 0) || !(bar.whole || bar.over_device)) return;
  const double at = x(x.low()) + 10;
  svg.line({at - 3, top + kBar + 2}, {at + 3, top - 2}, "tear");
}

std::vector<LegendEntry> legend_of(const Waterfall& waterfall) {
  const auto any = [&](const auto& holds) {
    return std::ranges::any_of(waterfall.bars, [&](const WaterfallBar& bar) {
      return bar.added_ms.has_value() && holds(bar);
    });
  };
  std::vector<LegendEntry> entries{{"device", "whole steps"}};
  const auto is_usual = [](const WaterfallBar& bar) { return !bar.whole && bar.classes.empty(); };
  if (any([&](const auto& bar) { return is_usual(bar) && value_of(bar) > 0; })) {
    entries.push_back({"starvation", "what is added"});
  }
  if (any([&](const auto& bar) { return is_usual(bar) && value_of(bar) < 0; })) {
    entries.push_back({"gain", "what is saved"});
  }
  const auto differs = [](const WaterfallBar& bar) {
    return bar.added_ms->low < bar.added_ms->high;
  };
  if (any([&](const auto& bar) { return differs(bar) && !bar.added_ms->is_spread; })) {
    entries.push_back({"whisker", "95 % interval", true});
  } else if (any(differs)) {
    entries.push_back({"whisker", "lowest to highest", true});
  }
  return entries;
}

}  // namespace

std::string waterfall_figure(const Waterfall& waterfall, const FigureSize& size) {
  const bool measured = std::ranges::any_of(
      waterfall.bars, [](const WaterfallBar& bar) { return bar.added_ms.has_value(); });
  if (!measured) return sentence_figure(size, kTitle, "No feeder was measured with a ceiling.");
  const Layout layout = layout_of(waterfall, size.width);
  const auto [low, high] = ends_of(waterfall);
  const double left = layout.narrow ? 0 : layout.labels;
  const double right = layout.narrow ? size.width : size.width - layout.values;
  const Scale x(low, high, left, right);
  const double bottom = layout.top + layout.row * static_cast<double>(waterfall.bars.size()) + 2;
  Svg svg(size, std::string(kTitle), waterfall.description);
  const std::string axis = waterfall.axis + (low > 0 ? "; the axis does not begin at 0" : "");
  horizontal_axis(svg, x, layout.top, bottom, {axis});
  const WaterfallBar* before = nullptr;
  for (std::size_t i = 0; i < waterfall.bars.size(); ++i) {
    const WaterfallBar& bar = waterfall.bars[i];
    const double top = layout.bar_top(i);
    if (before != nullptr && bar.added_ms && end_of(*before) == bar.from_ms) {
      const auto row = static_cast<std::size_t>(before - waterfall.bars.data());
      svg.line({x(bar.from_ms), layout.bar_top(row) + kBar}, {x(bar.from_ms), top}, "axis");
    }
    draw_bar(svg, bar, x, top);
    draw_tear(svg, bar, x, top);
    if (bar.added_ms) before = &bar;
    const std::string value = value_text(bar);
    const double room =
        layout.narrow ? size.width - text_width(value, Svg::kText) - 12 : layout.labels - 12;
    svg.text({0, layout.text_line(i)}, shortened(bar.label, room, Svg::kText), "halo");
    svg.text({size.width, layout.text_line(i)}, value, bar.added_ms ? "halo" : "halo soft",
             Anchor::end);
  }
  const double end = legend(svg, 0, bottom + kAxisHeight, size.width, legend_of(waterfall));
  return std::move(svg).finish(end + 4);
}

}  // namespace penstock::report
