// SPDX-License-Identifier: Apache-2.0
// The way of an image from its source to the trainer, as a drawing: a box for each stage, and on
// the arrow behind it what that stage could do.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"

namespace penstock {

struct PipelineStage {
  std::string name;
  std::string workers{};  ///< "2 decode threads"; empty: not said
  std::string use{};      ///< "busy 96 %"; empty: not known
  double img_per_s = 0;   ///< if nothing else held it up; 0: not known
  bool narrow = false;    ///< it holds up all others
};

/// Stages upstream first, the trainer last. `demand_img_per_s`: what the trainer could do; arrows
/// are as thick as their rates up to twice that. From left to right where there is room, else from
/// top to bottom.
std::string pipeline_figure(const std::vector<PipelineStage>& stages, double demand_img_per_s,
                            const FigureSize& size);

}  // namespace penstock
