// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"
#include "bench/statistics/series.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "Supply over cores against the device's demand";
constexpr double kTop = 30, kPlot = 240;

bool usable(const statistics::ScalingPoint& point) {
  return !point.img_per_s.empty() && std::isfinite(point.threads) &&
         std::ranges::all_of(point.img_per_s, [](double rate) { return std::isfinite(rate); });
}

double measured_to(const SupplyDemand& data) {
  double most = data.needed ? data.needed->measured_to : 0;
  for (const statistics::ScalingPoint& point : data.measured) {
    if (usable(point)) most = std::max(most, point.threads);
  }
  return most;
}

struct Plot {
  Scale x, y;
};

Plot plot_of(const SupplyDemand& data, double width) {
  double threads = measured_to(data) + 0.5;
  double rate = std::isfinite(data.demand_img_per_s) ? data.demand_img_per_s : 0;
  for (const statistics::ScalingPoint& point : data.measured) {
    if (usable(point)) rate = std::max(rate, std::ranges::max(point.img_per_s));
  }
  for (const LawPoint& point : data.law) {
    threads = std::max(threads, point.threads);
    if (std::isfinite(point.img_per_s.value)) rate = std::max(rate, point.img_per_s.value);
  }
  const Scale y(0, rounded_up(1.12 * rate, 6), kTop + kPlot, kTop);
  return {{0, threads, vertical_axis_width(y), width - 6}, y};
}

void draw_ground(Svg& svg, const Plot& plot, double measured) {
  const double from = plot.x(measured), right = plot.x.to();
  if (right - from < 2) return;
  svg.box({from, kTop, right - from, kPlot}, "shade");
  const double half = text_width("extrapolated", Svg::kSmall) / 2;
  const double middle = std::min((from + right) / 2, svg.width() - half);
  svg.text({std::max(middle, half + 40), kTop - 12}, "extrapolated", "small soft", Anchor::middle);
  const double left = plot.x.from();
  const double measured_half = text_width("measured", Svg::kSmall) / 2;
  const double measured_middle = std::max((left + from) / 2, measured_half + 44);
  if (measured_middle + measured_half + 8 < std::max(middle, half + 40) - half) {
    svg.text({measured_middle, kTop - 12}, "measured", "small soft", Anchor::middle);
  }
}

void draw_law(Svg& svg, const Plot& plot, const std::vector<LawPoint>& law) {
  std::vector<Point> line, band;
  for (const LawPoint& point : law) {
    if (!std::isfinite(point.img_per_s.value)) continue;
    line.push_back({plot.x(point.threads), plot.y(point.img_per_s.value)});
    if (!has_interval(point.img_per_s)) continue;
    band.push_back({plot.x(point.threads), plot.y(point.img_per_s.high)});
  }
  for (auto point = law.rbegin(); point != law.rend(); ++point) {
    if (!has_interval(point->img_per_s)) continue;
    band.push_back({plot.x(point->threads), plot.y(point->img_per_s.low)});
  }
  svg.polygon(band, "band");
  svg.polyline(line, "law");
}

void draw_points(Svg& svg, const Plot& plot, const std::vector<statistics::ScalingPoint>& points) {
  for (const statistics::ScalingPoint& point : points) {
    if (!usable(point)) continue;
    const auto [low, high] = std::ranges::minmax(point.img_per_s);
    const double x = plot.x(point.threads), mean = statistics::mean(point.img_per_s);
    svg.line({x, plot.y(low)}, {x, plot.y(high)}, "whisker");
    svg.circle({x, plot.y(mean)}, 4.5, "ink",
               fmt::format("{} threads: {} img/s ({} to {})", number_text(point.threads, 2),
                           number_text(mean), number_text(low), number_text(high)));
  }
}

void draw_demand(Svg& svg, const Plot& plot, double demand, double supply) {
  const double y = plot.y(demand);
  svg.line({plot.x.from(), y}, {plot.x.to(), y}, "demand");
  const std::string text = fmt::format("demand: {} img/s", number_text(demand));
  if (supply < demand) {  // free space is on the left above the line
    svg.text({plot.x.from() + 6, y - 6}, text, "demand-text");
  } else {
    svg.text({plot.x.to() - 4, y + 15}, text, "demand-text", Anchor::end);
  }
}

/// Draws on one line, or on two if one does not fit into `room`. `at` is the place of the first
/// line, or of the last line if `upwards`.
void draw_answer(Svg& svg, Point at, double room, const std::string& text, Anchor anchor,
                 bool upwards) {
  constexpr double kLine = 16;
  const std::size_t colon = text.find(": ");
  if (text_width(text, Svg::kText) * 1.15 <= room || colon == std::string::npos) {
    svg.text(at, text, "strong", anchor);
    return;
  }
  if (upwards) at.y -= kLine;
  svg.text(at, text.substr(0, colon), "strong", anchor);
  svg.text({at.x, at.y + kLine}, text.substr(colon + 2), "strong", anchor);
}

void draw_needed(Svg& svg, const Plot& plot, const statistics::ThreadsNeeded& needed,
                 double demand) {
  const double y = plot.y(demand), bottom = plot.y.from(), width = plot.x.to() - plot.x.from();
  const std::string text = needed_text(needed);
  if (!needed.known || !needed.reachable || !std::isfinite(needed.threads.value)) {
    const bool room_above = needed.peak_img_per_s.value < 0.8 * demand;  // the curve stays below
    draw_answer(svg, {plot.x.to() - 4, room_above ? y + 18 : bottom - 8}, 0.6 * width, text,
                Anchor::end, !room_above);
    return;
  }
  const double x = plot.x(needed.threads.value);
  whisker(svg, plot.x, needed.threads.low, needed.threads.high, y);
  svg.line({x, y}, {x, bottom}, "whisker dotted");
  svg.circle({x, y}, 5, "starvation", text);
  const double right = plot.x.to() - x - 12, left = 0.8 * (x - plot.x.from());  // under the curve
  const bool on_right = right > left;
  draw_answer(svg, {on_right ? x + 8 : x - 8, bottom - 8}, std::max(left, right), text,
              on_right ? Anchor::start : Anchor::end, true);
}

}  // namespace

std::string needed_text(const statistics::ThreadsNeeded& needed) {
  if (!needed.known) {
    return needed.reachable ? fmt::format("at least {} cores needed", needed.whole)
                            : std::string("cores needed: not known");
  }
  if (needed.reachable) {
    const int decimals = decimals_of(needed.threads, 1);
    return fmt::format("{} cores needed: {} {}", needed.whole,
                       fixed_text(needed.threads.value, decimals),
                       interval_text(needed.threads, decimals));
  }
  return fmt::format("not reachable: peak {}", estimate_text(needed.peak_img_per_s, "img/s", 0));
}

std::string supply_demand_figure(const SupplyDemand& data, const FigureSize& size) {
  if (std::ranges::none_of(data.measured, usable)) {
    return sentence_figure(size, kTitle,
                           "The supply with other numbers of cores was not measured.");
  }
  std::string description = data.needed ? needed_text(*data.needed) + ". " : "";
  double supply = 0;
  for (const statistics::ScalingPoint& point : data.measured) {
    if (!usable(point)) continue;
    supply = std::max(supply, statistics::mean(point.img_per_s));
    description += fmt::format("{} threads supply {} img/s. ", number_text(point.threads, 2),
                               number_text(statistics::mean(point.img_per_s)));
  }
  const Plot plot = plot_of(data, size.width);
  const double bottom = kTop + kPlot;
  Svg svg(size, std::string(kTitle), description);
  draw_ground(svg, plot, measured_to(data));
  vertical_axis(svg, plot.y, plot.x.from(), plot.x.to(), {"img/s"});
  horizontal_axis(svg, plot.x, bottom, bottom, {"feeder threads, a core each", true});
  draw_law(svg, plot, data.law);
  const double demand = data.demand_img_per_s;
  if (std::isfinite(demand) && demand > 0) {
    draw_demand(svg, plot, demand, supply);
    if (data.needed) draw_needed(svg, plot, *data.needed, demand);
  }
  draw_points(svg, plot, data.measured);
  const std::array<LegendEntry, 3> entries{{{"ink", "measured: the feeder alone"},
                                            {"law", "universal scalability law", true},
                                            {"band", "its 95 % band"}}};
  return std::move(svg).finish(legend(svg, 0, bottom + kAxisHeight, size.width,
                                      std::span(entries).first(data.law.empty() ? 1 : 3)) +
                               4);
}

}  // namespace penstock::report
