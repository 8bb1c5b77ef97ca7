// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/axis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"

namespace penstock::report {
namespace {

constexpr double kSwatch = 10, kLegendLine = 18, kCap = 4;

Ticks ticks_of(const Scale& scale, double room, bool whole) {
  const double length = std::fabs(scale.to() - scale.from());
  const int count = std::clamp(static_cast<int>(length / room), 2, 9);
  return ticks_between(scale.low(), scale.high(), count, whole);
}

Ticks vertical_ticks(const Scale& y, bool whole) { return ticks_of(y, 30, whole); }

}  // namespace

void horizontal_axis(Svg& svg, const Scale& x, double top, double bottom, const AxisText& text) {
  const Ticks ticks = ticks_of(x, 64, text.whole);
  for (const double value : ticks.values) {
    svg.line({x(value), top}, {x(value), bottom}, "grid");
    const std::string label = fixed_text(value, ticks.decimals);
    const double half = text_width(label, Svg::kSmall) / 2;
    const double at = std::clamp(x(value), half, std::max(half, svg.width() - half));
    svg.text({at, bottom + 15}, label, "small soft", Anchor::middle);
  }
  svg.line({x.from(), bottom}, {x.to(), bottom}, "axis");
  svg.text({std::max(x.from(), x.to()), bottom + 31}, text.title, "small soft", Anchor::end);
}

double vertical_axis_width(const Scale& y, bool whole) {
  const Ticks ticks = vertical_ticks(y, whole);
  double width = 0;
  for (const double value : ticks.values) {
    width = std::max(width, text_width(fixed_text(value, ticks.decimals), Svg::kSmall));
  }
  return width + 8;
}

void vertical_axis(Svg& svg, const Scale& y, double left, double right, const AxisText& text) {
  const Ticks ticks = vertical_ticks(y, text.whole);
  for (const double value : ticks.values) {
    svg.line({left, y(value)}, {right, y(value)}, "grid");
    svg.text({left - 6, y(value) + 4}, fixed_text(value, ticks.decimals), "small soft",
             Anchor::end);
  }
  svg.text({0, std::min(y.from(), y.to()) - 12}, text.title, "small soft");
}

double legend(Svg& svg, double left, double top, double right,
              std::span<const LegendEntry> entries) {
  double x = left, bottom = top;
  for (const LegendEntry& entry : entries) {
    const double width = kSwatch + 6 + text_width(entry.text, Svg::kText);
    if (x > left && x + width > right) {
      x = left;
      bottom += kLegendLine;
    }
    if (entry.line) {
      const double middle = bottom + 3 + kSwatch / 2;
      svg.line({x, middle}, {x + kSwatch + 2, middle}, entry.classes);
    } else {
      svg.box({x, bottom + 3, kSwatch, kSwatch}, entry.classes);
    }
    svg.text({x + kSwatch + 6, bottom + 12},
             shortened(entry.text, right - x - kSwatch - 6, Svg::kText));
    x += width + 16;
  }
  return entries.empty() ? top : bottom + kLegendLine;
}

void whisker(Svg& svg, const Scale& x, double low, double high, double y) {
  const bool empty = low == high || (std::isinf(low) && std::isinf(high));
  if (std::isnan(low) || std::isnan(high) || empty) return;
  svg.line({x(low), y}, {x(high), y}, "whisker");
  for (const double end : {low, high}) {
    if (x.holds(end)) {
      svg.line({x(end), y - kCap}, {x(end), y + kCap}, "whisker");
    } else {  // cut
      const double tip = x(end), back = (end > x.high() ? -1.5 : 1.5) * kCap;
      const double inside = x.from() < x.to() ? back : -back;
      svg.polygon(
          std::array{Point{tip, y}, Point{tip + inside, y - kCap}, Point{tip + inside, y + kCap}},
          "ink");
    }
  }
}

}  // namespace penstock::report
