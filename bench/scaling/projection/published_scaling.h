// SPDX-License-Identifier: Apache-2.0
// How training scaled for others, as they published it: what projections can be checked against.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace penstock {

struct PublishedPoint {
  std::int32_t ranks = 1;
  std::int32_t batch = 1;  ///< images of a device
  double img_per_s = 0;    ///< of all devices
  bool fitted = false;     ///< the formula's constants come from it; else they predict it
  /// Where points of a series are not of one model: its own name, size and speed.
  std::string_view model{};
  double gradient_mb = 0;   ///< 0: the series'
  double ms_per_image = 0;  ///< of one device alone, given and not fitted; 0: the series' constant
};

/// The constants that a series leaves open; those that are closed do not act.
struct OpenConstants {
  bool per_image = true;   ///< ms of a device for an image
  bool bandwidth = false;  ///< bytes/s that an exchange gets
  bool jitter = false;     ///< standard deviation of a step, as a share of it
};

struct PublishedSeries {
  std::string_view name, source;
  std::string_view caveat{};
  double gradient_mb = 0;
  OpenConstants open;
  std::span<const PublishedPoint> points;
};

std::span<const PublishedSeries> published_scaling();

/// Figures that were looked at and left out, and why; a sentence each.
std::span<const std::string_view> left_out();

}  // namespace penstock
