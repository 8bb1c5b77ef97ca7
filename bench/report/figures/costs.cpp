// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/figures.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr double kNarrow = 520;  // a narrower figure has labels and values above its marks
constexpr std::string_view kDotsTitle = "Share of the device's speed that each row loses";

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
    return std::any_of(dots.begin(), dots.end(), [is_spread](const CostDot& dot) {
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
  if (dots.empty()) return sentence_figure(size, kDotsTitle, "No row has an input cost.");
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
  Svg svg(size, std::string(kDotsTitle), description);
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

namespace {

constexpr std::string_view kSplitTitle = "What the cost consists of";
constexpr double kSplitBar = 24, kBold = 1.15;

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
    svg.box({x(from), top, x(from + part.value) - x(from), kSplitBar}, part.classes, part.text);
    from += part.value;
    if (part.value > 0) svg.line({x(from), top}, {x(from), top + kSplitBar}, "edge");
  }
}

}  // namespace

std::string cost_split_figure(const std::vector<SplitBar>& bars, const FigureSize& size) {
  if (bars.empty())
    return sentence_figure(size, kSplitTitle, "No cost was found that could be split.");
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
  Svg svg(size, std::string(kSplitTitle), description);
  double y = 0;
  for (const SplitBar& bar : bars) {
    const std::string total = estimate_text(bar.total_ms, "ms a step");
    const double room = size.width - text_width(total, Svg::kText) * kBold - 12;
    svg.text({0, y + 14}, shortened(bar.label, room / kBold, Svg::kText), "strong");
    svg.text({size.width, y + 14}, total, "strong", Anchor::end);
    y += 22;
    draw_parts(svg, bar, x, y);
    svg.line({x(0), y - 3}, {x(0), y + kSplitBar + 3}, "axis");
    std::vector<LegendEntry> entries;
    for (const Part& part : parts_of(bar)) entries.push_back({part.classes, part.text});
    y = legend(svg, 0, y + kSplitBar + 6, size.width, entries) + 16;
  }
  return std::move(svg).finish(y - 10);
}

namespace {

constexpr std::string_view kWaterfallTitle = "Time of a step, and what feeding adds to it";
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

std::string tooltip_of(const WaterfallBar& bar) { return bar.label + ": " + value_text(bar); }

void draw_bar(Svg& svg, const WaterfallBar& bar, const Scale& x, double top) {
  const std::string tooltip = tooltip_of(bar);
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
    return std::any_of(waterfall.bars.begin(), waterfall.bars.end(), [&](const WaterfallBar& bar) {
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
  const bool measured =
      std::any_of(waterfall.bars.begin(), waterfall.bars.end(),
                  [](const WaterfallBar& bar) { return bar.added_ms.has_value(); });
  if (!measured)
    return sentence_figure(size, kWaterfallTitle, "No feeder was measured with a ceiling.");
  const Layout layout = layout_of(waterfall, size.width);
  const auto [low, high] = ends_of(waterfall);
  const double left = layout.narrow ? 0 : layout.labels;
  const double right = layout.narrow ? size.width : size.width - layout.values;
  const Scale x(low, high, left, right);
  const double bottom = layout.top + layout.row * static_cast<double>(waterfall.bars.size()) + 2;
  Svg svg(size, std::string(kWaterfallTitle), waterfall.description);
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
