// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

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

constexpr double kPlot = 260, kPlus = 5, kGap = 26;

struct Look {
  std::string_view line, swatch;
};
/// In the order of CurveLook.
constexpr Look kLooks[] = {{"curve curve-1", "device"},   {"curve curve-2", "starvation"},
                           {"curve curve-3", "gain"},     {"curve curve-4", "interference"},
                           {"curve curve-5", "transfer"}, {"curve curve-ideal", "residual"}};

const Look& look_of(CurveLook look) { return kLooks[static_cast<std::size_t>(look)]; }

bool usable(const CurvePoint& point) {
  return std::isfinite(point.ranks) && point.ranks > 0 && std::isfinite(point.value);
}

/// Maps ranks and values to pixels.
class Plot {
 public:
  Plot(const ScalingCurves& data, double top, double width)
      : doublings_(data.doublings), y_(0, 1, 0, 1) {
    double least = 1e300, most = 0, high = 0;
    for (const Curve& curve : data.curves) {
      for (const CurvePoint& point : curve.points) {
        if (!usable(point)) continue;
        least = std::min(least, point.ranks);
        most = std::max(most, point.ranks);
        high = std::max(high, point.value);
        if (std::isfinite(point.high)) high = std::max(high, point.high);
      }
    }
    const bool reached = data.at_least > 0 && high <= 1.001 * data.at_least;
    y_ = Scale(0, reached ? data.at_least : rounded_up(1.04 * high, 6), top + kPlot, top);
    const double left = vertical_axis_width(y_);
    x_ = doublings_ ? Scale(std::log2(least), std::log2(most), left + 4, width - 14)
                    : Scale(data.from_origin ? 0 : least, 1.04 * most, left, width - 6);
  }
  double x(double ranks) const { return x_(doublings_ ? std::log2(ranks) : ranks); }
  double y(double value) const { return y_(value); }
  const Scale& horizontal() const { return x_; }
  const Scale& vertical() const { return y_; }

 private:
  bool doublings_;
  Scale x_{0, 1, 0, 1}, y_;
};

void draw_doublings(Svg& svg, const Plot& plot, double top, double bottom, std::string_view title) {
  const Scale& x = plot.horizontal();
  const int first = static_cast<int>(std::ceil(x.low() - 1e-9));
  const int last = static_cast<int>(std::floor(x.high() + 1e-9));
  const double room = (x.to() - x.from()) / std::max(1.0, x.high() - x.low());
  const int step = std::max(1, static_cast<int>(std::ceil(38 / room)));
  for (int power = first; power <= last; power += step) {
    const double at = x(power);
    const std::string label = fixed_text(std::exp2(power), 0);
    svg.line({at, top}, {at, bottom}, "grid");
    const double half = text_width(label, Svg::kSmall) / 2;
    svg.text({std::min(at, svg.width() - half), bottom + 15}, label, "small soft", Anchor::middle);
  }
  svg.line({x.from(), bottom}, {x.to(), bottom}, "axis");
  svg.text({x.to(), bottom + 31}, title, "small soft", Anchor::end);
}

void draw_point(Svg& svg, const Plot& plot, const Curve& curve, const CurvePoint& point) {
  const double x = plot.x(point.ranks), y = plot.y(point.value);
  if (std::isfinite(point.low) && std::isfinite(point.high) && point.low < point.high) {
    svg.line({x, plot.y(point.low)}, {x, plot.y(point.high)}, "whisker");
  }
  if (!curve.marked) return;
  svg.line({x - kPlus, y}, {x + kPlus, y}, "whisker");
  svg.line({x, y - kPlus}, {x, y + kPlus}, "whisker");
}

void draw_curve(Svg& svg, const Plot& plot, const ScalingCurves& data, const Curve& curve) {
  std::vector<Point> line;
  if (data.from_origin && !data.doublings) line.push_back({plot.x(0), plot.y(0)});
  for (const CurvePoint& point : curve.points) {
    if (usable(point)) line.push_back({plot.x(point.ranks), plot.y(point.value)});
  }
  svg.polyline(line, look_of(curve.look).line);
  for (const CurvePoint& point : curve.points) {
    if (usable(point)) draw_point(svg, plot, curve, point);
  }
}

}  // namespace

std::string scaling_curves_figure(const ScalingCurves& data, const FigureSize& size) {
  const bool any = std::ranges::any_of(
      data.curves, [](const Curve& curve) { return std::ranges::any_of(curve.points, usable); });
  if (!any) return sentence_figure(size, data.title, "Nothing was measured.");
  Svg svg(size, data.title, data.description);
  svg.text({0, 14}, shortened(data.title, size.width, Svg::kText), "strong");
  double top = 22;
  if (!data.stamp.empty()) {
    svg.text({0, 30}, shortened(data.stamp, size.width, Svg::kText), "demand-text");
    top += 16;
  }
  std::vector<LegendEntry> entries;
  for (const Curve& curve : data.curves)
    entries.push_back({look_of(curve.look).swatch, curve.name});
  top = legend(svg, 0, top, size.width, entries) + kGap;
  const Plot plot(data, top, size.width);
  const double bottom = top + kPlot;
  vertical_axis(svg, plot.vertical(), plot.horizontal().from(), plot.horizontal().to(),
                {data.value_title});
  if (data.doublings) {
    draw_doublings(svg, plot, top, bottom, data.ranks_title);
  } else {
    horizontal_axis(svg, plot.horizontal(), top, bottom, {data.ranks_title, true});
  }
  for (const Curve& curve : data.curves) draw_curve(svg, plot, data, curve);
  return std::move(svg).finish(bottom + kAxisHeight);
}

}  // namespace penstock::report
