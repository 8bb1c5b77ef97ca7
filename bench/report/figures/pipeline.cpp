// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "The pipeline, and what each stage could do";
constexpr double kArrow = 72, kBox = 58, kLeastBox = 84, kMostBox = 150, kTop = 22, kHead = 9;
constexpr std::string_view kBottleneck = "bottleneck";

bool is_known(const PipelineStage& stage) {
  return std::isfinite(stage.img_per_s) && stage.img_per_s > 0;
}

/// Half the thickness of an arrow.
double half_of(const PipelineStage& stage, double demand) {
  constexpr double kLeast = 1, kMost = 9, kTimesDemand = 2;
  if (!is_known(stage) || !(demand > 0)) return kLeast;
  const double share = std::min(1.0, stage.img_per_s / (kTimesDemand * demand));
  return kLeast + (kMost - kLeast) * share;
}

std::string_view looks_of(const PipelineStage& stage) {
  if (stage.narrow) return "starvation";
  return is_known(stage) ? "device" : "residual";
}

std::string rate_of(const PipelineStage& stage) {
  return is_known(stage) ? number_text(stage.img_per_s) : "?";
}

void draw_box(Svg& svg, const PipelineStage& stage, Box box) {
  svg.box(box, "shade", stage.name);
  const std::array<Point, 5> frame = {Point{box.x, box.y}, Point{box.x + box.width, box.y},
                                      Point{box.x + box.width, box.y + box.height},
                                      Point{box.x, box.y + box.height}, Point{box.x, box.y}};
  svg.polyline(frame, stage.narrow ? "narrow-place" : "frame");
  const double middle = box.x + box.width / 2, room = box.width - 8;
  svg.text({middle, box.y + 18}, shortened(stage.name, room / 1.15, Svg::kText), "strong",
           Anchor::middle);
  svg.text({middle, box.y + 34}, shortened(stage.workers, room, Svg::kSmall), "small soft",
           Anchor::middle);
  svg.text({middle, box.y + 49}, shortened(stage.use, room, Svg::kSmall), "small soft",
           Anchor::middle);
}

/// Draws from left to right.
std::string draw_across(const std::vector<PipelineStage>& stages, double demand,
                        const FigureSize& size, Svg svg) {
  const auto count = static_cast<double>(stages.size());
  const double width = std::min(kMostBox, (size.width - count * kArrow) / count);
  const double arrow = (size.width - count * width) / count;
  const double y = kTop + kBox / 2;
  double x = 0;
  for (const PipelineStage& stage : stages) {
    draw_box(svg, stage, {x + 1, kTop, width - 2, kBox});
    if (stage.narrow) {
      svg.text({x + width / 2, kTop - 7}, kBottleneck, "strong demand-text", Anchor::middle);
    }
    const double from = x + width + 4, to = x + width + arrow - 4, half = half_of(stage, demand);
    const double neck = to - kHead;
    svg.polygon(std::array{Point{from, y - half}, Point{neck, y - half}, Point{neck, y - half - 4},
                           Point{to, y}, Point{neck, y + half + 4}, Point{neck, y + half},
                           Point{from, y + half}},
                looks_of(stage));
    const double middle = (from + to) / 2;
    svg.text({middle, y - 17}, rate_of(stage), stage.narrow ? "strong demand-text" : "strong",
             Anchor::middle);
    svg.text({middle, y + 27}, "img/s", "small soft", Anchor::middle);
    x += width + arrow;
  }
  return std::move(svg).finish(kTop + kBox + 6);
}

/// Draws from top to bottom, with rates beside the arrows.
std::string draw_down(const std::vector<PipelineStage>& stages, double demand,
                      const FigureSize& size, Svg svg) {
  constexpr double kDown = 36;
  const double width = std::min(0.62 * size.width, 240.0), middle = width / 2;
  double y = 2;
  for (const PipelineStage& stage : stages) {
    draw_box(svg, stage, {1, y, width - 2, kBox});
    if (stage.narrow) {
      svg.text({width + 10, y + kBox / 2 + 4}, kBottleneck, "strong demand-text");
    }
    const double from = y + kBox + 3, to = from + kDown - 6, half = half_of(stage, demand);
    const double neck = to - kHead;
    svg.polygon(std::array{Point{middle - half, from}, Point{middle - half, neck},
                           Point{middle - half - 4, neck}, Point{middle, to},
                           Point{middle + half + 4, neck}, Point{middle + half, neck},
                           Point{middle + half, from}},
                looks_of(stage));
    svg.text({middle + 20, from + 19}, fmt::format("{} img/s", rate_of(stage)),
             stage.narrow ? "strong demand-text" : "strong");
    y += kBox + kDown;
  }
  return std::move(svg).finish(y + 2);
}

}  // namespace

std::string pipeline_figure(const std::vector<PipelineStage>& stages, double demand_img_per_s,
                            const FigureSize& size) {
  if (stages.empty()) {
    return sentence_figure(size, kTitle, "What the stages of this pipeline did was not recorded.");
  }
  std::string description;
  for (const PipelineStage& stage : stages) {
    description += fmt::format("{}: {} img/s{}. ", stage.name, rate_of(stage),
                               stage.narrow ? ", the bottleneck" : "");
  }
  Svg svg(size, std::string(kTitle), description);
  const auto count = static_cast<double>(stages.size());
  const bool fits = (size.width - count * kArrow) / count >= kLeastBox;
  return fits ? draw_across(stages, demand_img_per_s, size, std::move(svg))
              : draw_down(stages, demand_img_per_s, size, std::move(svg));
}

}  // namespace penstock::report
