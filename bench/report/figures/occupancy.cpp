// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kQueuesTitle = "Batches ready in each ring over the window";
constexpr double kStrip = 52, kHead = 26, kGap = 14, kLeft = 24;

std::string summary_of(const QueueTrack& track) {
  return fmt::format("mean {} of {}; none ready {} % of the time, full {} %",
                     number_text(track.mean_filled, 2), track.slots,
                     fixed_text(track.empty_percent, 0), fixed_text(track.full_percent, 0));
}

/// Draws name and summary on one line if both fit, else on two. Returns the top of the strip.
double draw_head(Svg& svg, const std::string& name, const std::string& summary, double top) {
  const double name_width = text_width(name, Svg::kText) * 1.15 + 12;
  const double room = svg.width() - text_width(summary, Svg::kText);
  svg.text({0, top + 14}, shortened(name, svg.width() * 0.9, Svg::kText), "strong");
  if (name_width <= room) {
    svg.text({svg.width(), top + 14}, summary, "soft", Anchor::end);
    return top + kHead;
  }
  const double below = svg.paragraph({0, top + 30}, svg.width(), summary, "soft");
  return below - 4;
}

/// Levels over time, from 0 to the top of `y`.
void draw_levels(Svg& svg, const std::vector<double>& levels, const Scale& y) {
  const double bottom = y.from(), right = svg.width();
  const Scale x(0, static_cast<double>(levels.size()), kLeft, right);
  std::vector<Point> upper;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double level = y(levels[i]);
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

void draw_strip(Svg& svg, const QueueTrack& track, double top) {
  const int most = std::max(track.slots, 1);
  const Scale y(0, most, top + kStrip, top);
  for (int filled = 0; filled <= most; filled += most > 8 ? most : 1) {
    svg.line({kLeft, y(filled)}, {svg.width(), y(filled)}, "grid");
  }
  for (const int filled : {0, most}) {
    svg.text({kLeft - 6, y(filled) + 4}, fmt::format("{}", filled), "small soft", Anchor::end);
  }
  draw_levels(svg, track.filled, y);
}

void time_axis(Svg& svg, double window_s, double bottom) {
  horizontal_axis(svg, {0, window_s, kLeft, svg.width()}, bottom, bottom,
                  {"seconds since the window began"});
}

}  // namespace

std::string queue_occupancy_figure(const std::vector<QueueTrack>& tracks, double window_s,
                                   const FigureSize& size) {
  std::string description;
  for (const QueueTrack& track : tracks) {
    description += fmt::format("{}: {}. ", track.name, summary_of(track));
  }
  if (std::ranges::all_of(tracks, [](const QueueTrack& track) { return track.filled.empty(); })) {
    return sentence_figure(size, kQueuesTitle, "How full the rings were was not recorded.");
  }
  Svg svg(size, std::string(kQueuesTitle), description);
  double y = 0;
  for (const QueueTrack& track : tracks) {
    if (track.filled.empty()) continue;
    y = draw_head(svg, track.name, summary_of(track), y);
    draw_strip(svg, track, y);
    y += kStrip + kGap;
  }
  const double bottom = y - kGap;
  time_axis(svg, window_s, bottom);
  return std::move(svg).finish(bottom + kAxisHeight);
}

std::string memory_figure(const std::vector<MemoryTrack>& tracks, double window_s,
                          const FigureSize& size) {
  constexpr std::string_view kTitle = "Memory in use over the window";
  const auto summary = [](const MemoryTrack& track) {
    return fmt::format("at most {}", quantity_text(track.peak_mib, "MiB", 4));
  };
  std::string description;
  for (const MemoryTrack& track : tracks) {
    description += fmt::format("{}: {}. ", track.name, summary(track));
  }
  if (tracks.empty()) return sentence_figure(size, kTitle, "Memory in use was not recorded.");
  Svg svg(size, std::string(kTitle), description);
  double y = 0;
  for (const MemoryTrack& track : tracks) {
    y = draw_head(svg, track.name, summary(track), y);
    draw_levels(svg, track.mib, {0, track.peak_mib, y + kStrip, y});
    y += kStrip + kGap;
  }
  time_axis(svg, window_s, y - kGap);
  return std::move(svg).finish(y - kGap + kAxisHeight);
}

}  // namespace penstock::report
