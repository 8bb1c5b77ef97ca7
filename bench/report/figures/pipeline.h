// SPDX-License-Identifier: Apache-2.0
// Draws the path of an image from source to trainer: a box per stage, followed by an arrow with the
// rate that the stage could reach.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"

namespace penstock::report {

struct PipelineStage {
  std::string name;
  std::string workers{};  ///< "2 decode threads"; empty: not shown
  std::string use{};      ///< "busy 96 %"; empty: unknown
  double img_per_s = 0;   ///< if no other stage limited it; 0: unknown
  bool narrow = false;    ///< it is the bottleneck
};

/// `stages` are upstream first, the trainer last. `demand_img_per_s` is the rate that the trainer
/// could reach. The thickness of an arrow grows with its rate, up to twice the demand. Drawn from
/// left to right if there is room, else from top to bottom.
std::string pipeline_figure(const std::vector<PipelineStage>& stages, double demand_img_per_s,
                            const FigureSize& size);

}  // namespace penstock::report
