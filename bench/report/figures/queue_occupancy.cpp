// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "Batches ready in each ring over the window";
constexpr double kStrip = 52, kHead = 26, kGap = 14, kLeft = 24;

std::string summary_of(const QueueTrack& track) {
  return fmt::format("mean {} of {}; none ready {} % of the time, full {} %",
                     number_text(track.mean_filled, 2), track.slots,
                     fixed_text(track.empty_percent, 0), fixed_text(track.full_percent, 0));
}

/// Draws name and summary on one line if both fit, else on two. Returns the top of the strip.
double draw_head(Svg& svg, const QueueTrack& track, double top) {
  const std::string summary = summary_of(track);
  const double name_width = text_width(track.name, Svg::kText) * 1.15 + 12;
  const double room = svg.width() - text_width(summary, Svg::kText);
  svg.text({0, top + 14}, shortened(track.name, svg.width() * 0.9, Svg::kText), "strong");
  if (name_width <= room) {
    svg.text({svg.width(), top + 14}, summary, "soft", Anchor::end);
    return top + kHead;
  }
  const double below = svg.paragraph({0, top + 30}, svg.width(), summary, "soft");
  return below - 4;
}

void draw_strip(Svg& svg, const QueueTrack& track, double top) {
  const double bottom = top + kStrip, right = svg.width();
  const int most = std::max(track.slots, 1);
  const Scale y(0, most, bottom, top);
  for (int filled = 0; filled <= most; filled += most > 8 ? most : 1) {
    svg.line({kLeft, y(filled)}, {right, y(filled)}, "grid");
  }
  for (const int filled : {0, most}) {
    svg.text({kLeft - 6, y(filled) + 4}, fmt::format("{}", filled), "small soft", Anchor::end);
  }
  const Scale x(0, static_cast<double>(track.filled.size()), kLeft, right);
  std::vector<Point> upper;
  for (std::size_t i = 0; i < track.filled.size(); ++i) {
    const double level = y(track.filled[i]);
    upper.push_back({x(static_cast<double>(i)), level});
    upper.push_back({x(static_cast<double>(i + 1)), level});
  }
  std::vector<Point> area = upper;
  area.push_back({right, bottom});
  area.push_back({kLeft, bottom});
  if (!upper.empty()) svg.polygon(area, "band");
  svg.polyline(upper, "law thin");
  svg.line({kLeft, bottom}, {right, bottom}, "axis");
}

}  // namespace

std::string queue_occupancy_figure(const std::vector<QueueTrack>& tracks, double window_s,
                                   const FigureSize& size) {
  std::string description;
  for (const QueueTrack& track : tracks) {
    description += fmt::format("{}: {}. ", track.name, summary_of(track));
  }
  const bool recorded = std::any_of(tracks.begin(), tracks.end(),
                                    [](const QueueTrack& track) { return !track.filled.empty(); });
  if (!recorded) {
    return sentence_figure(size, kTitle, "How full the rings were was not recorded.");
  }
  Svg svg(size, std::string(kTitle), description);
  double y = 0;
  for (const QueueTrack& track : tracks) {
    if (track.filled.empty()) continue;
    y = draw_head(svg, track, y);
    draw_strip(svg, track, y);
    y += kStrip + kGap;
  }
  const double bottom = y - kGap;
  horizontal_axis(svg, {0, window_s, kLeft, size.width}, bottom, bottom,
                  {"seconds since the window began"});
  return std::move(svg).finish(bottom + kAxisHeight);
}

}  // namespace penstock::report
