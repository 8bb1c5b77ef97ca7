// SPDX-License-Identifier: Apache-2.0
// Published measurements of training scaling, to check projections against. The figures are in
// published_scaling.json, which CMake embeds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::scaling {

struct PublishedPoint {
  std::int32_t ranks = 1;
  std::int32_t batch = 1;  ///< images per device
  double img_per_s = 0;    ///< of all devices
  bool fitted = false;     ///< true: used to fit the formula's constants; false: predicted
  /// If the points of a series have different models: this point's name, size and speed.
  std::string model{};
  double gradient_mb = 0;   ///< 0: that of the series
  double ms_per_image = 0;  ///< of one device alone, given and not fitted; 0: the series' constant
};

/// The constants to fit for a series; the others have no effect.
struct OpenConstants {
  bool per_image = true;   ///< ms per image of a device
  bool bandwidth = false;  ///< bytes/s of an exchange
  bool jitter = false;     ///< standard deviation of a step, as a share of it
};

struct PublishedSeries {
  std::string name, source;
  std::string caveat{};
  double gradient_mb = 0;
  OpenConstants open;
  std::vector<PublishedPoint> points{};
};

std::span<const PublishedSeries> published_scaling();

/// Published figures that are not used, and why; one sentence each.
std::span<const std::string> left_out();

}  // namespace penstock::scaling
